"""``dead_letters``: the events that could not be folded, and their state.

Invariant: one row per (projection, version, sequence), in state parked until a later decision says retried or discarded.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.access.tables import DEAD_LETTERS, DEAD_LETTERS_PROJECTION, DeadLetterRow
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Tables
from ...schemas.operate.events import DeadLetterDiscarded, DeadLetterRetried, EventParked
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class DeadLettersProjection:
    """Folds ``projection.event_parked`` and what operators decide about it."""

    name: ClassVar = DEAD_LETTERS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (DEAD_LETTERS,)
    folds: ClassVar = (EventParked, DeadLetterRetried, DeadLetterDiscarded)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record parkings and decisions in stream order."""
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, EventParked):
                self._park(event, payload, tx)
            elif isinstance(payload, DeadLetterRetried):
                self._decide(tx, "retried", payload)
            elif isinstance(payload, DeadLetterDiscarded):
                self._decide(tx, "discarded", payload)

    def _park(self, event: EntryRecorded, letter: EventParked, tx: FoldTransaction) -> None:
        if not tx.get(DEAD_LETTERS, projection=letter.projection, version=letter.version, seq=letter.seq):
            name = letter.projection, letter.seq, letter.version
            row = DeadLetterRow(*name, letter.subject, letter.reason, event.ts_ms, "parked", event.workspace_id)
            tx.add(DEAD_LETTERS, [row])

    def _decide(self, tx: FoldTransaction, state: str, letter: DeadLetterRetried | DeadLetterDiscarded) -> None:
        known = tx.get(DEAD_LETTERS, projection=letter.projection, seq=letter.seq)
        tx.replace(DEAD_LETTERS, [row._replace(state=state) for row in known])


PROJECTION = DeadLettersProjection
