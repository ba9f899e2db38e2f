"""An import goes on only from what the journal proves to hold."""

from __future__ import annotations

from typing import Any

import pytest

from crew_journal.schemas.core.errors import CrewJournalError, NotAllowed, NotFound, Unavailable, ViewsBehind
from crew_journal.services.cli.importing.run import ImportState, still_held

STATE = ImportState("a.jsonl", line=40, last_seq=40, last_id="i_40", last_workspace="ours")


class Found:
    def __init__(self, seq: int) -> None:
        self.seq = seq


class Journal:
    """Holds one entry of workspace ``ours``; its views pass it only when they are waited for."""

    def __init__(self, seq: int, *, behind: bool = False, fails: CrewJournalError | None = None) -> None:
        self.seq = seq
        self.behind = behind
        self.fails = fails

    def get(self, entry_id: str, *, min_seq: int | None, workspace_id: str | None) -> Found:
        if self.fails is not None:
            raise self.fails
        if min_seq is not None and min_seq > self.seq:
            raise ViewsBehind("the views are behind")
        if (entry_id, workspace_id) != ("i_40", "ours") or (self.behind and min_seq is None):
            raise NotFound("no such entry")
        return Found(self.seq)


@pytest.mark.parametrize("behind", [False, True], ids=["shown", "shown once waited for"])
def test_it_goes_on_behind_an_entry_that_is_where_it_was_acked(behind: bool) -> None:
    journal: Any = Journal(40, behind=behind)
    assert still_held(journal, STATE)


@pytest.mark.parametrize(
    "journal",
    [
        Journal(12, behind=True),
        Journal(41),
        Journal(40, fails=NotFound("no such entry")),
        Journal(40, fails=Unavailable("no answer")),
    ],
    ids=["ends before it", "holds it elsewhere", "does not know it", "does not answer"],
)
def test_it_starts_over_in_a_journal_that_does_not_contain_it(journal: Any) -> None:
    assert not still_held(journal, STATE)


def test_a_progress_file_that_names_no_entry_proves_nothing() -> None:
    journal: Any = Journal(40)
    assert not still_held(journal, ImportState("a.jsonl", line=40, last_seq=40))


def test_a_token_without_the_right_gets_an_error() -> None:
    journal: Any = Journal(40, fails=NotAllowed("another workspace"))
    with pytest.raises(NotAllowed):
        still_held(journal, STATE)
