"""After an import: wait until what was acked can be found, for views follow the journal a moment later.

Invariant: the wait is bounded, and nothing of the import depends on it: what was acked is in the journal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ....schemas.errors import CrewJournalError, ViewsBehind

if TYPE_CHECKING:
    from ...client import CrewJournal

VIEWS_WAIT_S: Final = 30.0
"""Seconds to wait for the views: at 10,000 entries/s a lag of 300,000."""


def views_behind(journal: CrewJournal, seq: int, *, wait_s: float = VIEWS_WAIT_S) -> int | None:
    """Wait until the views have passed a sequence.

    Args:
        journal: The service; each question waits there for some seconds.
        seq: The last sequence that was acked.
        wait_s: Seconds after which nothing more is asked.

    Returns:
        By how many sequences they are still behind, 0 if they are not; None if the service does not say.
    """
    until = time.monotonic() + wait_s
    try:
        while True:
            try:
                journal.count(min_seq=seq)
            except ViewsBehind:
                if time.monotonic() >= until:
                    return max(0, seq - journal.count().view_seq)
            else:
                return 0
    except CrewJournalError:
        return None
