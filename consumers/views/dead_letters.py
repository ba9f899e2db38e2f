"""``dead_letters``: what could not be folded, and what became of it.

Invariant: one row per (projection, version, sequence), in state parked until a later decision says retried or discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_DDL: Final = """CREATE TABLE IF NOT EXISTS dead_letters (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, seq UBIGINT NOT NULL, subject VARCHAR NOT NULL,
    reason VARCHAR NOT NULL, parked_ms BIGINT NOT NULL, state VARCHAR NOT NULL, workspace_id VARCHAR NOT NULL)"""


class DeadLettersProjection:
    """Folds ``projection.event_parked`` and what operators decide about it."""

    name: ClassVar[str] = "dead_letters"
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = ("dead_letters",)
    digest: ClassVar[Mapping[str, str]] = {
        "dead_letters": "projection, seq, version, subject, reason, parked_ms, state, workspace_id"
    }

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record parkings and decisions in stream order."""
        for event in batch.controls:
            kind = event.entry.entry_type
            if kind == EventParked.ENTRY_TYPE:
                self._parked(event, tx)
            elif kind == DeadLetterRetried.ENTRY_TYPE:
                retried = payload_of(event, DeadLetterRetried)
                self._decide(tx, "retried", retried.projection, retried.seq)
            elif kind == DeadLetterDiscarded.ENTRY_TYPE:
                discarded = payload_of(event, DeadLetterDiscarded)
                self._decide(tx, "discarded", discarded.projection, discarded.seq)

    def _parked(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        parked = payload_of(event, EventParked)
        name = [parked.projection, parked.version, parked.seq]
        if tx.rows("SELECT 1 FROM dead_letters WHERE projection = ? AND version = ? AND seq = ?", name):
            return
        tx.execute(
            "INSERT INTO dead_letters (projection, version, seq, subject, reason, parked_ms, state, workspace_id) "
            "VALUES (?, ?, ?, ?, ?, ?, 'parked', ?)",
            [*name, parked.subject, parked.reason, event.ts_ms, event.workspace_id],
        )

    def _decide(self, tx: FoldTransaction, state: str, projection: str, seq: int) -> None:
        tx.execute("UPDATE dead_letters SET state = ? WHERE projection = ? AND seq = ?", [state, projection, seq])


PROJECTION = DeadLettersProjection
