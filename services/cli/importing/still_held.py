"""Before an import goes on: whether the journal still holds what was sent to it.

Invariant: an import goes on only from what the journal proves. A journal that was restored from an older copy, emptied or
exchanged lost its end, hence the entry with the highest sequence that was acked; whatever else is the reason that it is not
shown, sending everything again is right, because an entry counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....schemas.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from ...client import CrewJournal
    from .state import ImportState


def still_held(journal: CrewJournal, state: ImportState) -> bool:
    """Whether the last entry that was acked is where it was acked.

    Args:
        journal: The service; its views may be behind, then they are waited for, some seconds.
        state: How far the import had come; of something that was sent.

    Raises:
        CrewJournalError: If the token may not ask.
    """
    if not state.last_id:
        return False  # kept by a version that did not remember it
    try:
        return _seq(journal, state, None) == state.last_seq
    except NotFound:
        pass  # not yet, or not any more
    except Unavailable:
        return False
    try:
        return _seq(journal, state, state.last_seq) == state.last_seq
    except (NotFound, Unavailable):
        return False


def _seq(journal: CrewJournal, state: ImportState, min_seq: int | None) -> int:
    return journal.get(state.last_id, workspace_id=state.last_workspace, min_seq=min_seq).seq
