"""What `publish` is told is either in the entry or refused: an entry cannot be changed afterwards."""

import io
import json

import pytest
from support.fake_client import URL, FakeClient

from crew_journal.schemas.api import Receipt
from crew_journal.services.cli import connection
from crew_journal.services.cli.main import main

ENTRY = {"entry_type": "a.b", "summary": "said"}
OPTIONS = {
    "--id": "one",
    "--type": "c.d",
    "--summary": "other",
    "--severity": "error",
    "--priority": "pin",
    "--crew": "coast",
    "--agent": "bob",
    "--mission": "m",
    "--trace": "t",
    "--span": "s",
    "--ts": "2026-01-01T00:00:00Z",
    "--actor-type": "user",
    "--actor": "ada",
    "--data-subject": "carol",
    "--supersedes": "two",
    "--valid-at": "2026-05-01T00:00:00Z",
    "--payload": "{}",
    "--refs": "{}",
    "--schema-version": "2",
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(connection, "sync_client", lambda there: client)
    return client


def on_stdin(monkeypatch: pytest.MonkeyPatch, content: object) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(content).encode())))


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_beside_entries_from_stdin_is_refused_by_name(
    option: str, fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_stdin(monkeypatch, ENTRY)
    assert main(["publish", "-", option, OPTIONS[option], *URL]) == 2
    assert option in capsys.readouterr().err
    assert fake.asked == []


def test_every_option_without_stdin_is_a_field_of_the_entry(fake: FakeClient) -> None:
    given = [part for pair in OPTIONS.items() for part in pair]
    assert main(["publish", *given, *URL]) == 0
    ((_, (record,), _),) = fake.asked
    assert len(record) == len(OPTIONS)
    assert record["supersedes"] == ["two"]
    assert [record["entry_type"], record["summary"], record["schema_version"]] == ["c.d", "other", 2]


def test_a_summary_that_is_given_twice_is_refused(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "x", "--type", "a.b", "--summary", "y", *URL]) == 2
    assert "--summary" in capsys.readouterr().err
    assert fake.asked == []


@pytest.mark.parametrize("content", [[], 5, [ENTRY, 5]])
def test_stdin_without_entries_is_refused(
    content: object, fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_stdin(monkeypatch, content)
    assert main(["publish", "-", *URL]) == 2
    assert "not a JSON object" in capsys.readouterr().err
    assert fake.asked == []


def test_what_is_nested_too_deeply_is_wrong_usage_and_no_defect(
    fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = '{"a":' * 100_000
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(deep.encode())))
    for argv in (["publish", "-"], ["publish", "x", "--type", "a.b", "--payload", deep]):
        assert main([*argv, *URL]) == 2
        assert "nested too deeply" in capsys.readouterr().err
    assert fake.asked == []


def test_the_workspace_goes_into_entries_from_stdin_that_name_none(
    fake: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_stdin(monkeypatch, [ENTRY, ENTRY | {"workspace_id": None}, ENTRY | {"workspace_id": "wsx"}])
    monkeypatch.setattr(fake, "answer", lambda name, args: ())
    assert main(["publish", "-", "-w", "wsx", *URL]) == 0
    assert fake.asked == [("append_batch", ([ENTRY | {"workspace_id": "wsx"}] * 3,), {})]


def test_an_entry_from_stdin_that_names_another_workspace_is_refused(
    fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_stdin(monkeypatch, [ENTRY, ENTRY | {"workspace_id": "elsewhere"}])
    assert main(["publish", "-", "-w", "wsx", *URL]) == 2
    assert "--workspace: entry 2 " in capsys.readouterr().err
    assert fake.asked == []


def test_a_warning_of_the_answer_is_printed_on_stderr(
    fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "answer", lambda name, args: Receipt(id="a1", seq=7, warnings=("supersedes: x counts",)))
    assert main(["publish", "--type", "a.b", "done", "--supersedes", "x", *URL]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("a1  seq 7\n", "warning: supersedes: x counts\n")
