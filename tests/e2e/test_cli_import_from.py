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
