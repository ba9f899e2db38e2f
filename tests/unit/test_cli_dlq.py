"""Settling several dead letters at once: all that can be, and the others named."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from crew_journal.schemas.core.errors import InvalidQuery, NotFound, RefusedByOneView
from crew_journal.schemas.operate.operations import DeadLetterAnswer
from crew_journal.services.cli import connection
from crew_journal.services.cli.main import main

URL = ["--url", "http://127.0.0.1:1", "--token", "cj_x"]


class Letters:
    """A client that knows the dead letters 3 and 5, 6, which is no JSON, and 7, which one view refused."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    def _settle(self, seq: int, state: str) -> DeadLetterAnswer:
        if seq not in (3, 5):
            raise NotFound(f"no parked event at sequence {seq}")
        self.settled.append(seq)
        return DeadLetterAnswer(seq=seq, state=state, new_seq=seq + 100 if state == "retried" else None)

    def retry_dead_letter(self, seq: int, *, workspace_id: str | None = None, force: bool = False) -> DeadLetterAnswer:
        if seq == 6:
            raise InvalidQuery("the event would be parked again: the entry at 6 is no JSON", hint="discard it")
        if seq == 7 and not force:
            raise RefusedByOneView("only turns could not fold the event at 7", hint="a new version of turns")
        return self._settle(3 if seq == 7 else seq, "retried")

    def discard_dead_letter(self, seq: int, reason: str, *, workspace_id: str | None = None) -> DeadLetterAnswer:
        return self._settle(seq, "discarded")


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    known = Letters()

    monkeypatch.setattr(connection, "sync_client", lambda _: nullcontext(known))
    return known


@pytest.mark.parametrize(("command", "state"), [("retry", "retried"), ("discard", "discarded")])
def test_an_unknown_letter_in_the_middle_stops_nothing_and_is_named_at_the_end(
    command: str, state: str, letters: Letters, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = ["--reason", "known"] if command == "discard" else []
    assert main(["dlq", command, "3", "4", "5", "3", "9", *reason, *URL]) == 4
    said = capsys.readouterr()
    assert letters.settled == [3, 5]
    assert [line.split("  ")[0] for line in said.out.splitlines()] == ["3", "5"]
    assert state in said.out
    assert "no parked event at sequence 4; no parked event at sequence 9" in said.err


def test_what_one_view_alone_could_not_fold_is_published_again_only_by_force(
    letters: Letters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "retry", "7", "5", *URL]) == 1
    said = capsys.readouterr()
    assert letters.settled == [5], "the others are settled"
    assert "only turns could not fold the event at 7" in said.err
    assert "a new version of turns" in said.err
    assert main(["dlq", "retry", "7", "--force", *URL]) == 0
    assert letters.settled == [5, 3]


def test_json_names_both_kinds(letters: Letters, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlq", "retry", "4", "5", "--json", *URL]) == 4
    report = json.loads(capsys.readouterr().out)
    assert [letter["seq"] for letter in report["dead_letters"]] == [5]
    assert report["not_found"] == [4]


def test_one_that_would_be_parked_again_does_not_hold_up_the_others(
    letters: Letters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "retry", "3", "6", "7", "5", *URL]) == 2
    said = capsys.readouterr()
    assert letters.settled == [3, 5]
    assert [line.split("  ")[0] for line in said.out.splitlines()] == ["3", "5"]
    assert "the entry at 6 is no JSON; only turns could not fold the event at 7" in said.err
    assert "discard it" in said.err
    assert main(["dlq", "retry", "6", "4", "--json", *URL]) == 4
    report = json.loads(capsys.readouterr().out)
    assert (report["not_found"], report["invalid"], report["refused"]) == ([4], [6], [])
