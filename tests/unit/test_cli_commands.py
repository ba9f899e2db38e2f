"""What every command keeps: exit codes, JSON on stdout, failures on stderr, and its page in the documentation."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from crew_journal.schemas.api import (
    BrokerAnswer,
    CountAnswer,
    DeadLetter,
    DeadLetterAnswer,
    EntriesAnswer,
    EntryRecord,
    PriorityAnswer,
    RecallAnswer,
    Receipt,
    SweepAnswer,
    TokenCreatedAnswer,
    TokenRecord,
)
from crew_journal.schemas.errors import (
    CrewJournalError,
    DataDirBusy,
    EntryConflict,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    VerificationFailed,
    ViewsBehind,
)
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli import connection
from crew_journal.services.cli.main import app, main
from crew_journal.services.cli.options import FALLBACK_DATA_DIR

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
URL = ["--url", "http://127.0.0.1:1", "--token", "cj_x"]
ENTRY = {
    "id": "a1",
    "workspace_id": "default",
    "ts": "2026-01-01T00:00:00.000Z",
    "entry_type": "run.completed",
    "summary": "done",
    "seq": 7,
}
TOKEN = {
    "token_id": "t1",
    "role": "AGENT",
    "workspace_id": "default",
    "crew_id": None,
    "agent_id": "ada",
    "label": "",
    "created_ms": 1,
    "revoked_ms": None,
}
VIEW = {"rows": 3, "digest": "00", "tables": {}}
LETTER = {
    "projection": "entries",
    "version": 1,
    "seq": 3,
    "subject": "s",
    "reason": "odd",
    "parked_ms": 1,
    "state": "parked",
    "workspace_id": "default",
}


class FakeClient:
    """The client's boundary, with an answer to everything; ``asked`` remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.fails_with: Exception | None = None
        self.equal = True

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            self.asked.append((name, args, given))
            if self.fails_with is not None:
                raise self.fails_with
            return self.answer(name, args)

        return call

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        entry = EntryRecord.model_validate(ENTRY)
        hit = {
            **{n: ENTRY[n] for n in ("ts", "entry_type", "summary")},
            "entry_id": "a1",
            "score": 1.5,
            "age_seconds": 5,
        }
        difference = {"table": "postings", "key": {"doc": "7"}, "column": "tf", "kind": "changed"}
        verified = {
            "projection": "fulltext",
            "seq": 7,
            "equal": self.equal,
            "live": VIEW,
            "fresh": VIEW,
            "difference": None if self.equal else difference,
        }
        answers: dict[str, Callable[[], Any]] = {
            "append": lambda: Receipt(id="a1", seq=7),
            "append_batch": lambda: tuple(Receipt(id=r["id"], seq=i + 1) for i, r in enumerate(args[0])),
            "list": lambda: EntriesAnswer(entries=(entry,), next_cursor=None, view_seq=7),
            "count": lambda: CountAnswer(count=5, view_seq=7),
            "tail": lambda: iter([entry, entry]),
            "recall": lambda: RecallAnswer.model_validate(
                {"hits": [hit], "recipe": "robust", "model": None, "degraded": "lexical-only", "view_seq": 7}
            ),
            "status": lambda: {"view_seq": 7, "embedder": {"mode": "sparse-only"}, "reactors": [{"name": "embed"}]},
            "rebuild": lambda: iter([{"done": 1, "total": 2}, {"result": {"projections": ["entries"], "seq": 7}}]),
            "verify": lambda: iter([{"result": {"equal": self.equal, "projections": [verified]}}]),
            "dead_letters": lambda: (DeadLetter.model_validate(LETTER),),
            "retry_dead_letter": lambda: DeadLetterAnswer(seq=args[0], state="retried", new_seq=9),
            "discard_dead_letter": lambda: DeadLetterAnswer(seq=args[0], state="discarded"),
            "tokens": lambda: (TokenRecord.model_validate(TOKEN),),
            "create_token": lambda: TokenCreatedAnswer.model_validate({**TOKEN, "token": "cj_secret"}),
            "revoke_token": lambda: None,
            "embedder_status": lambda: {"kind": "none", "mode": "sparse-only"},
            "activate_model": lambda: {"model": args[0], "changed": True, "missing": 2, "embeddable": 5},
            "embedding_models": lambda: {"workspace_id": None, "models": [MODEL]},
            "add_model": lambda: {"model": MODEL["model"], "changed": True, "dim": 384},
            "compare_models": lambda: iter([{"done": 1, "total": 1}, {"result": COMPARED}]),
            "drop_model": lambda: {"model": args[0], "changed": True},
            "set_priority": lambda: PriorityAnswer.model_validate(
                {"entry_id": args[0], "priority": args[1], "previous_priority": "normal", "changed": True, "seq": 8}
            ),
            "sweep": lambda: SweepAnswer(workspace_id="default", sweep=args[0], due=ENTRY["ts"], seq=8),
            "broker": lambda: BrokerAnswer(url="nats://x", user=None, password=None),
        }
        return answers[name]()


MODEL = {
    "model": "all-MiniLM-L6-v2", "embedder": "minilm", "state": "added", "active": True, "active_in": ["_system"],
    "filled": True, "dim": 384, "vectors": 5, "refused": 0, "missing": 0, "embeddable": 5, "filling": None,
    "outcome": {"mode": "vector", "message": None, "last_success": "2026-11-21T09:00:00.000Z"},
}  # fmt: skip

COMPARED = {
    "models": ["a", "b"], "coverage": {name: {"vectors": 5, "embeddable": 5} for name in ("a", "b")}, "queries": 1,
    "recipe": "robust", "k": 10, "jaccard": 0.5, "rank_biased_overlap": 0.4, "persistence": 0.9, "same_first": 0.0,
    "mean_cosine": {"a": 0.4, "b": None}, "most_different": [{"query": "why?", "rank_biased_overlap": 0.4}],
}  # fmt: skip


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(connection, "sync_client", lambda there: client)
    return client


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {below}", it) for below, it in command.commands.items())
        else:
            yield name, command


COMMANDS = dict(leaves())

JSON_COMMANDS = {
    "publish": ["publish", "--type", "run.completed", "done"],
    "list": ["list"],
    "list --count": ["list", "--count"],
    "recall": ["recall", "what?"],
    "status": ["status"],
    "priority": ["priority", "a1", "pin", "--reason", "needed"],
    "sweep": ["sweep", "decay"],
    "rebuild": ["rebuild"],
    "verify": ["verify"],
    "dlq list": ["dlq", "list"],
    "dlq retry": ["dlq", "retry", "3"],
    "dlq discard": ["dlq", "discard", "3", "--reason", "known"],
    "embedder status": ["embedder", "status"],
    "embedder activate": ["embedder", "activate", "minilm", "--reason", "faster"],
    "embeddings list": ["embeddings", "list"],
    "embeddings add": ["embeddings", "add", "minilm"],
    "embeddings add --wait": ["embeddings", "add", "minilm", "--wait"],
    "embeddings compare": ["embeddings", "compare", "minilm", "nomic-embed-text", "--queries", "5"],
    "embeddings activate": ["embeddings", "activate", "minilm", "--reason", "faster"],
    "embeddings drop": ["embeddings", "drop", "minilm", "--reason", "slower"],
    "token create": ["token", "create", "--agent", "ada"],
    "token list": ["token", "list"],
    "token revoke": ["token", "revoke", "t1"],
}


@pytest.mark.parametrize("name", sorted(JSON_COMMANDS))
def test_with_json_stdout_is_one_document(name: str, fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JSON_COMMANDS[name], *URL, "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize("name", sorted(JSON_COMMANDS))
def test_without_json_a_person_gets_an_answer(name: str, fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JSON_COMMANDS[name], *URL]) == 0
    said = capsys.readouterr()
    assert said.out or said.err


def test_a_stream_is_one_object_a_line(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", *URL, "--json", "--limit", "2"]) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [7, 7]
    assert main(["list", "--all", *URL, "--json"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["a1"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CrewJournalError("x"), 1),
        (EntryConflict("x"), 1),
        (RuntimeError("x"), 1),
        (InvalidQuery("x"), 2),
        (NotAuthenticated("x"), 3),
        (NotAllowed("x"), 3),
        (NotFound("x"), 4),
        (Unavailable("x"), 5),
        (ViewsBehind("x"), 5),
        (DataDirBusy("x"), 5),
        (VerificationFailed("x"), 6),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_failure_has_its_exit_code(error: BaseException, code: int, fake: FakeClient) -> None:
    fake.fails_with = error  # type: ignore[assignment]  # Ctrl-C is no Exception
    assert main(["status", *URL]) == code


def test_a_failure_is_said_on_stderr_with_a_hint(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    fake.fails_with = NotFound("no entry a1", hint="look again")
    assert main(["list", *URL]) == 4
    assert capsys.readouterr() == ("", "error: no entry a1\nhint: look again\n")


def test_with_json_a_failure_is_one_document_on_stderr(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    fake.fails_with = NotFound("no entry a1", hint="look again")
    assert main(["list", *URL, "--json"]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err)["error"] == {
        "type": "NotFound",
        "title": "Not found",
        "message": "no entry a1",
        "hint": "look again",
        "field": None,
        "problems": [],
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["list", "--nonsense"],
        ["list", "--limit", "many"],
        ["recall"],
        ["recall", "x", "--k", "0x", *URL],
        ["import", "no-such-file.jsonl"],
        ["eval", "no-such-folder"],
        ["up", "--durability", "maybe"],
        ["up", "--embedder", "magic"],
        ["work", "nonsense"],
        ["publish", "--payload", "[1]", "--type", "a", "x", *URL],
        ["publish", "--payload", "{", "--type", "a", "x", *URL],
        ["dlq", "discard", "3"],
        ["token", "create", "--all-workspaces", "--workspace", "a", *URL],
    ],
)
@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["plain", "json"])
def test_wrong_usage_is_2_and_says_what_is_wrong(
    argv: list[str], json_flag: list[str], fake: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, *json_flag]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    if json_flag:
        assert json.loads(said.err)["error"]["message"]
    else:
        assert said.err.startswith("error: ")
    assert fake.asked == []


def test_a_difference_is_6_and_named(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    fake.equal = False
    assert main(["verify", *URL]) == 6
    assert "postings, row doc 7, column tf: changed" in capsys.readouterr().err
    assert main(["verify", *URL, "--json"]) == 6
    assert json.loads(capsys.readouterr().out)["equal"] is False


def test_publish_sends_exactly_what_was_given(fake: FakeClient) -> None:
    argv = ["publish", "--type", "a.b", "--crew", "c", "--payload", '{"n": 1}', "--workspace", "w", "it is"]
    assert main([*argv, *URL]) == 0
    expected = {"entry_type": "a.b", "crew_id": "c", "payload": {"n": 1}, "workspace_id": "w", "summary": "it is"}
    assert fake.asked == [("append", (expected,), {})]


def test_list_hands_every_filter_on(fake: FakeClient) -> None:
    argv = ["list", "--crew", "a", "--crew", "b", "--type", "x.y", "--since", "2026-01-01T00:00:00Z", "-q", "words"]
    assert main([*argv, "-n", "7", "--min-seq", "3", "-w", "ws", *URL]) == 0
    assert fake.asked[0][2] == {
        "crew_ids": ["a", "b"],
        "types": ["x.y"],
        "since": "2026-01-01T00:00:00Z",
        "q": "words",
        "limit": 7,
        "cursor": None,
        "min_seq": 3,
        "workspace_id": "ws",
    }


def test_a_degraded_answer_says_so(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recall", "what?", *URL]) == 0
    assert "degraded: lexical-only" in capsys.readouterr().err


def test_a_hostile_memory_does_not_act_on_the_terminal(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = EntryRecord.model_validate({**ENTRY, "summary": "\x1b[2Jgone \x9b31m [red]x[/red] \u202e"})
    fake.answer = lambda name, args: EntriesAnswer(entries=(hostile,), next_cursor=None, view_seq=7)  # type: ignore[method-assign]  # one answer
    assert main(["list", *URL]) == 0
    shown = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "[red]x[/red]" in shown


def test_without_a_journal_reading_is_not_found_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--data-dir", str(tmp_path / "none")]) == 4
    assert "crew-journal up" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_an_address_without_a_token_is_not_allowed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREW_JOURNAL_TOKEN", raising=False)
    assert main(["list", "--url", "http://127.0.0.1:1"]) == 3
    assert "--token" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"crew-journal \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_the_schema_is_the_exported_one(capsys: pytest.CaptureFixture[str]) -> None:
    from crew_journal.schemas.export import entry_json_schema

    assert main(["schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == entry_json_schema()


# documentation and start-up


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_its_section_and_every_option_is_in_it(name: str) -> None:
    page = PAGE.read_text("utf-8")
    sections = re.split(r"^#{2,3} ", page, flags=re.MULTILINE)
    own = [section for section in sections if re.match(rf"`{re.escape(name)}[ `]", section)]
    assert own, f"docs/cli.md has no section for `{name}`"
    shared = sections[0]
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            longest = max(parameter.opts, key=len)
            assert longest in own[0] + shared, f"{longest} of `{name}` is not documented"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert main([*name.split(), "--help"]) == 0
    assert all(getattr(parameter, "help", None) for parameter in command.params)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_takes_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


def test_the_page_names_no_command_that_is_not_there() -> None:
    named = re.findall(r"^### `([a-z]+(?: [a-z]+)*)", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert {re.sub(r" minilm$", "", name) for name in named} == set(COMMANDS)


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = "import sys; from crew_journal.services.cli import main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"httpx", "pydantic", "pydantic_settings", "duckdb", "nats", "fastapi", "numpy", "pyarrow", "rich.console"}
    assert heavy.isdisjoint(done.stdout.split())


def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_CREW_JOURNAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "crew-journal re",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['crew-journal']; from crew_journal.services.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert {"recall", "rebuild"} <= set(done.stdout.split())


def test_the_default_data_directory_is_the_settings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREW_JOURNAL_DATA_DIR", raising=False)
    assert Settings().data_dir == FALLBACK_DATA_DIR
