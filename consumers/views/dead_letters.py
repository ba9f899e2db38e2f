"""``dead_letters``: the events that could not be folded, and their state.

Invariant: one row per (projection, version, sequence), in state parked until a later decision says retried or discarded.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from ...schemas.views.table import Tables
from ...schemas.views.workspaces import DEAD_LETTERS, DEAD_LETTERS_PROJECTION, DeadLetterRow
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction


class DeadLettersProjection:
    """Folds ``projection.event_parked`` and what operators decide about it."""

    name: ClassVar = DEAD_LETTERS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (DEAD_LETTERS,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record parkings and decisions in stream order."""
        for event in batch.controls:
            kind = event.entry.entry_type
            if kind == EventParked.ENTRY_TYPE:
                self._parked(event, tx)
            elif kind == DeadLetterRetried.ENTRY_TYPE:
                self._decide(tx, "retried", payload_of(event, DeadLetterRetried))
            elif kind == DeadLetterDiscarded.ENTRY_TYPE:
                self._decide(tx, "discarded", payload_of(event, DeadLetterDiscarded))

    def _parked(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        parked = payload_of(event, EventParked)
        if not tx.get(DEAD_LETTERS, projection=parked.projection, version=parked.version, seq=parked.seq):
            name = parked.projection, parked.seq, parked.version
            row = DeadLetterRow(*name, parked.subject, parked.reason, event.ts_ms, "parked", event.workspace_id)
            tx.add(DEAD_LETTERS, [row])

    def _decide(self, tx: FoldTransaction, state: str, letter: DeadLetterRetried | DeadLetterDiscarded) -> None:
        known = tx.get(DEAD_LETTERS, projection=letter.projection, seq=letter.seq)
        tx.replace(DEAD_LETTERS, [row._replace(state=state) for row in known])


PROJECTION = DeadLettersProjection
