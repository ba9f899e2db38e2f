"""``memory_sweeps``: when each sweep was last due and last finished, per workspace.

Invariant: ``due_ms`` never decreases, even after late events; if ``finished_due_ms`` differs from ``due_ms``, the sweep
is due, running, or has no consumer.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.sweeps.events import SweepFinished, SweepTicked
from ...schemas.sweeps.tables import SWEEPS, SWEEPS_PROJECTION, SweepRow
from ..folds.payloads import decisions, json_text
from ..projection import Batch, FoldTransaction


class SweepsProjection:
    """Folds ``sweep.ticked`` and ``sweep.finished``."""

    name: ClassVar = SWEEPS_PROJECTION
    version: ClassVar = 2
    tables: ClassVar[Tables] = (SWEEPS,)
    folds: ClassVar = (SweepTicked, SweepFinished)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Keep the latest tick and finish of each workspace and sweep; the table is small and read whole."""
        if not batch.control(*self.folds):
            return
        known = {(row.workspace_id, row.sweep): row for row in tx.whole(SWEEPS)}
        changed: dict[tuple[str, str], SweepRow] = {}
        for event, tick in decisions(batch, SweepTicked):
            name = event.workspace_id, tick.sweep
            row = changed.get(name) or known.get(name) or SweepRow(*name)
            changed[name] = _ticked(row, _instant(event, tick.due), event)
        for event, done in decisions(batch, SweepFinished):
            name = event.workspace_id, done.sweep
            row = changed.get(name) or known.get(name) or SweepRow(*name)
            changed[name] = _finished(row, _instant(event, done.due), event, done)
        tx.replace(SWEEPS, list(changed.values()))


def _ticked(row: SweepRow, due_ms: int, event: EntryRecorded) -> SweepRow:
    """The row with a later due time."""
    if row.due_ms is not None and row.due_ms >= due_ms:
        return row
    return row._replace(due_ms=due_ms, tick_seq=event.seq, ticked_ms=event.published_ms)


def _finished(row: SweepRow, due_ms: int, event: EntryRecorded, done: SweepFinished) -> SweepRow:
    """The row with the end of the latest finished sweep."""
    if row.finished_due_ms is not None and row.finished_due_ms > due_ms:
        return row
    return row._replace(
        finished_due_ms=due_ms,
        finished_seq=event.seq,
        finished_ms=event.published_ms,
        counts=json_text(done.counts),
        error=done.error,
    )


def _instant(event: EntryRecorded, due: str) -> int:
    try:
        return to_ms(parse_ts(due))
    except ValueError as error:
        raise FoldError(f"the sweep event at {event.seq} has no valid due: {error}") from None


PROJECTION = SweepsProjection
