"""An import waits until what it sent can be found, but not for ever, and says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crew_journal.schemas.api import CountAnswer
from crew_journal.schemas.core.errors import CrewJournalError, NotAuthenticated, Unavailable, ViewsBehind
from crew_journal.services.cli import connection
from crew_journal.services.cli.connection import Target
from crew_journal.services.cli.importing.command import _behind
from crew_journal.services.cli.importing.run import views_behind
from crew_journal.services.cli.options import Where


class Views:
    """A service whose views gain ten sequences with every question; ``fails`` is raised instead."""

    def __init__(self, view_seq: int, fails: CrewJournalError | None = None) -> None:
        self.view_seq = view_seq
        self.fails = fails

    def count(self, *, min_seq: int = 0) -> CountAnswer:
        if self.fails is not None:
            raise self.fails
        if min_seq > self.view_seq:
            self.view_seq += 10
            raise ViewsBehind("the views are behind")
        return CountAnswer(count=0, view_seq=self.view_seq)


@pytest.mark.parametrize("view_seq", [40, 100, 170])
def test_it_waits_until_the_views_have_passed_what_was_sent(view_seq: int) -> None:
    views: Any = Views(view_seq)
    assert views_behind(views, 100) == 0
    assert views.view_seq >= 100


def test_in_the_end_it_says_by_how_much_they_are_behind() -> None:
    views: Any = Views(40)
    assert views_behind(views, 100, wait_s=0.0) == 50


def test_a_service_that_went_away_makes_no_failure_of_an_import_that_is_done() -> None:
    views: Any = Views(40, Unavailable("nobody is there"))
    assert views_behind(views, 100) is None


def test_neither_does_a_service_that_is_not_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: Where) -> Target:
        raise NotAuthenticated("the owner's token cannot be read")

    monkeypatch.setattr(connection, "resolve", nobody)
    assert _behind(Target("http://127.0.0.1:9", "cj_t", tmp_path), Where(tmp_path), 5) is None
