"""What every command keeps: exit codes, JSON on stdout, failures on stderr."""

import json
import re
from pathlib import Path

import pytest
from support.fake_client import ENTRY, URL, FakeClient

from crew_journal.schemas.api import EntriesAnswer, EntryRecord
from crew_journal.schemas.core.errors import (
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
from crew_journal.services.cli import connection
from crew_journal.services.cli.main import main


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(connection, "sync_client", lambda there: client)
    return client


JSON_COMMANDS = {
    "publish": ["publish", "--type", "run.completed", "done"],
    "list": ["list"],
    "list --count": ["list", "--count"],
    "get": ["get", "a1"],
    "recall": ["recall", "what?"],
    "used": ["used", "r_1", "a1"],
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
    "embeddings activate": ["embeddings", "activate", "minilm", "--reason", "faster", "--force"],
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


def test_status_asks_for_the_workspace_that_is_named(fake: FakeClient) -> None:
    assert main(["status", "-w", "ops", *URL]) == 0
    assert fake.asked == [("status", (), {"workspace_id": "ops"})]


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
    ],
)
@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["plain", "json"])
def test_wrong_usage_is_2_and_says_what_is_wrong(
    argv: list[str],
    json_flag: list[str],
    fake: FakeClient,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # the checkout has a journal after `make run`, which tests do not trust
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
    assert "postings, row doc 7, column tf: changed" in capsys.readouterr().out
    assert main(["verify", *URL, "--json"]) == 6
    assert json.loads(capsys.readouterr().out)["equal"] is False


def test_publish_sends_exactly_what_was_given(fake: FakeClient) -> None:
    argv = ["publish", "--type", "a.b", "--crew", "c", "--payload", '{"n": 1}', "--workspace", "w", "it is"]
    assert main([*argv, *URL]) == 0
    expected = {"entry_type": "a.b", "crew_id": "c", "payload": {"n": 1}, "workspace_id": "w", "summary": "it is"}
    assert fake.asked == [("append", (expected,), {})]


def test_list_hands_every_filter_on(fake: FakeClient) -> None:
    argv = ["list", "--crew", "a", "--crew", "b", "--type", "x.y", "--since", "2026-01-01T00:00:00Z", "-q", "words"]
    assert main([*argv, "-n", "7", "--min-seq", "3", "--as-of", "41250", "-w", "ws", *URL]) == 0
    assert fake.asked[0][2] == {
        "crew_ids": ["a", "b"],
        "types": ["x.y"],
        "since": "2026-01-01T00:00:00Z",
        "q": "words",
        "limit": 7,
        "cursor": None,
        "min_seq": 3,
        "as_of": "41250",
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


def test_reading_without_a_journal_is_not_found_and_creates_none(
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


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"crew-journal \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_the_schema_is_the_exported_one(capsys: pytest.CaptureFixture[str]) -> None:
    from crew_journal.schemas.catalogue import entry_json_schema

    assert main(["schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == entry_json_schema()


@pytest.mark.parametrize("address", ["foo", "127.0.0.1:99999", ":9119"])
def test_up_refuses_what_is_no_address_before_it_makes_anything(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    assert main(["up", "--http", address, "--data-dir", str(data_dir)]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
    assert not data_dir.exists()


def test_a_path_that_cannot_be_used_is_named_with_what_to_do(
    fake: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fails_with = NotADirectoryError(20, "Not a directory", "file/below")
    assert main(["status", *URL]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: file/below: Not a directory\nhint: check the path")


def test_used_names_a_receipt_and_then_any_hits_of_it(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["used", "r_1", "a1", "b2", *URL]) == 0
    assert capsys.readouterr().out == "2 entries recorded as used\n"
    assert main(["used", "r_1", *URL]) == 0
    assert fake.asked == [("used", ("r_1",), {"entry_ids": ["a1", "b2"]}), ("used", ("r_1",), {})]


def test_get_shows_every_field_of_an_entry(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "a1", "-w", "wsx", *URL]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (shown["id"], shown["summary"], shown["payload"], shown["standing"]) == ("a1", "done", "{}", "-")
    assert fake.asked == [("get", ("a1",), {"min_seq": None, "as_of": None, "workspace_id": "wsx"})]
