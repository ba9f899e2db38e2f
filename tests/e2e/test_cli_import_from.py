"""`import --from` and `import` of a listing, on a real journal: the second time nothing is new."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import Cli, Up, eventually

SAMPLES = Path(__file__).parents[1] / "data" / "imports"
FILES = {
    "claude-code": "claude-code",
    "codex": "codex",
    "chatgpt": "chatgpt.json",
    "claude": "claude.json",
    "openai-messages": "openai-messages.jsonl",
    "mem0": "mem0.json",
    "mcp-memory": "mcp-memory.jsonl",
    "otel": "otel.json",
    "cloudevents": "cloudevents.json",
    "slack": "slack",
    "omp": "omp/01_evidence_and_derivation.json",
}
CHATS = 3_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Cli(tmp_path_factory.mktemp("from") / "data").up() as up:
        yield up


@pytest.fixture
def cli(running: Up, tmp_path: Path) -> Cli:
    return running.beside(tmp_path / "data")


def test_every_format_is_imported_once_however_often(cli: Cli) -> None:
    last = 0
    for name, file in FILES.items():
        into = ("import", "--from", name, str(SAMPLES / file), "-w", "formats", "--json")
        first, second = cli(*into).json, cli(*into).json
        assert first["imported"] == first["plan"]["entries"] > 0, name
        assert (second["imported"], second["repeated"]) == (0, first["imported"]), name
        last = max(last, first["last_seq"])
    for question, answer in {
        "freezer broke": "the freezer in general broke",
        "peanuts": "Maria is allergic to peanuts",
        "Aarhus": "Works from Aarhus on Fridays",
        "scanner port": "port 7421",
    }.items():
        hits = cli("recall", question, "-w", "formats", "--min-seq", str(last), "--json").json["hits"]
        assert any(answer in hit["summary"] for hit in hits), question


@pytest.mark.parametrize("case", sorted((SAMPLES / "omp").glob("*.json")), ids=lambda path: path.stem)
def test_an_exchange_of_the_open_memory_protocol_is_taken_over_as_the_draft_asks(
    cli: Cli, tmp_path: Path, case: Path
) -> None:
    """Exchanges of our own in the eleven shapes: what counts afterwards, what is refused; a second import adds nothing."""
    content = json.loads(case.read_text())
    expected, place = content["expect"], ("-w", f"omp-{case.stem[:2]}", "--json")
    if before := expected.get("before"):
        (tmp_path / "before.json").write_text(json.dumps(before))
        cli("import", "--from", "omp", str(tmp_path / "before.json"), *place)
    into = ("import", "--from", "omp", str(case), *place)
    if "refused" in expected:
        assert expected["refused"] in cli(*into, code=2).err
        return
    first = cli(*into, code=None).json
    assert first["plan"]["left_out"] == expected["left_out"]
    assert first.get("taken", 0) == expected.get("taken", 0)
    assert cli(*into, code=None).json.get("imported", 0) == 0
    seen = ("--min-seq", str(first["last_seq"])) if first.get("last_seq") else ()
    listed = cli("list", "--type", "memory.imported", "--all", *seen, *place, code=None).lines
    current = [entry["payload"].get("text") or entry["summary"] for entry in listed if entry["standing"] is None]
    assert sorted(current) == sorted(expected.get("texts", current))
    assert len(current) == expected.get("current", len(current))


def test_a_workspace_comes_back_from_an_exchange_with_what_it_replaced_and_retracted(cli: Cli, tmp_path: Path) -> None:
    place = ("-w", "omp-out")
    lines = [
        {"id": "old", "entry_type": "memory.remembered", "summary": "The kiln is at 900 degrees", "agent_id": "ada"},
        {
            "id": "new",
            "entry_type": "memory.remembered",
            "summary": "The kiln is at 950 degrees",
            "agent_id": "ada",
            "supersedes": ["old"],
        },
        {"id": "gone", "entry_type": "memory.remembered", "summary": "The kiln is blue"},
        {
            "id": "false",
            "entry_type": "memory.remembered",
            "summary": "The glaze is stored in shed 4",
            "agent_id": "ada",
        },
        {"id": "said", "entry_type": "chat.user_message", "summary": "When does the kiln cool?", "actor_type": "user"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cli("import", str(tmp_path / "a.jsonl"), *place)
    right = cli("correct", "false", "The glaze is stored in shed 5", *place, "--json").json["replaced_by"]
    retracted = cli("retract", "gone", "--reason", "wrong", *place, "--json").json
    cli("list", "--count", "--min-seq", str(retracted["seq"]), *place)
    done = cli("export", str(tmp_path / "out"), "--format", "omp", *place, "--json").json["files"][0]
    exchange = json.loads(Path(done["file"]).read_text())
    assert done["entries"] == len(exchange["objects"]) == 6
    assert {one["revision_id"]: one["role"] for one in exchange["objects"]}["said"] == "transcript"
    assert {(one["kind"], one["target"], one["replacement"]) for one in exchange["events"]} == {
        ("supersede", "old", "new"),
        ("supersede", "false", right),
        ("retract", "gone", None),
    }
    back = cli("import", "--from", "omp", done["file"], "-w", "omp-back", "--json").json
    assert back["plan"]["left_out"] == {"ended at their source (retract)": 1}
    listed = cli("list", "--all", "--json", "--min-seq", str(back["last_seq"]), "-w", "omp-back").lines
    assert sorted(entry["summary"] for entry in listed if entry["standing"] is None) == [
        "The glaze is stored in shed 5",
        "The kiln is at 950 degrees",
        "When does the kiln cool?",
    ]


def test_a_dry_run_writes_nothing_and_starts_nothing(tmp_path: Path) -> None:
    nowhere = Cli(tmp_path / "data")
    done = nowhere("import", "--from", "mem0", str(SAMPLES / "mem0.json"), "--dry-run")
    assert "mem0: 2 entries" in done.err
    assert not nowhere.data_dir.exists()


def test_an_unknown_format_and_a_missing_file_are_named(cli: Cli) -> None:
    assert "claude-code" in cli("import", "--from", "letters", "x.json", code=2).err
    assert "there is no file or directory" in cli("import", "--from", "mem0", "x.json", code=2).err
    assert "goes with --from" in cli("import", "x.jsonl", "--dry-run", code=2).err


def test_what_list_prints_import_takes_back(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    lines = [
        {"entry_type": "import.line", "summary": f"line {n}", "agent_id": "ada", "refs": {"n": n}} for n in range(30)
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = cli("import", str(source), "-w", "first", "--json").json["last_seq"]
    cli("list", "-w", "first", "--count", "--min-seq", str(last))
    cli("token", "create", "-w", "first", "--role", "ADMIN")
    listing = tmp_path / "listing.jsonl"
    eventually(lambda: cli("list", "-w", "first", "--type", "token.created", "--count").out == "1\n", "the record")
    types = ("--type", "import.line", "--type", "token.created")
    listing.write_text(cli("list", "--all", "--json", "-w", "first", *types).out)
    done = cli("import", str(listing), "-w", "second", "--json").json
    assert (done["imported"], done["of_service"], done["skipped"]) == (30, 1, 0)
    again = cli("import", str(listing), "--json").json
    assert (again["imported"], again["repeated"], again["taken"]) == (0, 30, 0), "into the journal it came from"
    read = {}
    for workspace in ("first", "second"):
        of = cli(
            "list", "--all", "--json", "-w", workspace, "--type", "import.line", "--min-seq", str(done["last_seq"])
        )
        read[workspace] = {
            entry["id"]: {name: value for name, value in entry.items() if name not in ("seq", "workspace_id")}
            for entry in of.lines
        }
    assert read["first"] == read["second"]


def test_thousands_of_messages_are_imported_twice_with_nothing_new(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "messages.jsonl"
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"sentence {n} of the long talk"} for n in range(CHATS)]
    source.write_text("".join(json.dumps({"messages": turns[n : n + 30]}) + "\n" for n in range(0, CHATS, 30)))
    into = ("import", "--from", "openai-messages", str(source), "-w", "many", "--json")
    first, second = cli(*into).json, cli(*into).json
    assert (first["imported"], first["plan"]["conversations"]) == (CHATS, 100)
    assert (second["imported"], second["repeated"]) == (0, CHATS)
