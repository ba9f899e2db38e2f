"""``memory_sweeps``: when each sweep was last due and last finished, per workspace.

Invariant: ``due_ms`` never goes back, whatever comes late; ``due_ms`` without a ``finished_due_ms`` of the same time is a
sweep that is due or under way, or whose consumer is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from crew_journal.consumers.payloads import payload_of
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.consumers.views.entries import json_text
from crew_journal.schemas.errors import FoldError
from crew_journal.schemas.events.control import SweepFinished, SweepTicked
from crew_journal.schemas.events.envelope import EntryRecorded
from crew_journal.schemas.timestamps import parse_ts, to_ms
from crew_journal.schemas.views import SWEEPS, SWEEPS_PROJECTION

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {SWEEPS} (
    workspace_id VARCHAR NOT NULL, sweep VARCHAR NOT NULL, due_ms BIGINT, tick_seq UBIGINT, ticked_ms BIGINT,
    finished_due_ms BIGINT, finished_seq UBIGINT, finished_ms BIGINT, counts VARCHAR, error VARCHAR)"""


class SweepsProjection:
    """Folds ``sweep.ticked`` and ``sweep.finished``."""

    name: ClassVar[str] = SWEEPS_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (SWEEPS,)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Keep the latest tick and finish of each workspace and sweep."""
        for event in batch.control(SweepTicked.ENTRY_TYPE):
            tick = payload_of(event, SweepTicked)
            due_ms = _instant(event, tick.due)
            _ensure(event.workspace_id, tick.sweep, tx)
            tx.execute(
                f"""UPDATE {SWEEPS} SET due_ms = ?, tick_seq = ?, ticked_ms = ?
                WHERE workspace_id = ? AND sweep = ? AND coalesce(due_ms < ?, true)""",
                [due_ms, event.seq, event.published_ms, event.workspace_id, tick.sweep, due_ms],
            )
        for event in batch.control(SweepFinished.ENTRY_TYPE):
            done = payload_of(event, SweepFinished)
            due_ms = _instant(event, done.due)
            _ensure(event.workspace_id, done.sweep, tx)
            tx.execute(
                f"""UPDATE {SWEEPS} SET finished_due_ms = ?, finished_seq = ?, finished_ms = ?, counts = ?, error = ?
                WHERE workspace_id = ? AND sweep = ? AND coalesce(finished_due_ms <= ?, true)""",
                [due_ms, event.seq, event.published_ms, json_text(done.counts), done.error, event.workspace_id,
                 done.sweep, due_ms],
            )  # fmt: skip


def _instant(event: EntryRecorded, due: str) -> int:
    try:
        return to_ms(parse_ts(due))
    except ValueError as error:
        raise FoldError(f"the sweep event at {event.seq} has no valid due: {error}") from None


def _ensure(workspace_id: str, sweep: str, tx: FoldTransaction) -> None:
    if not tx.rows(f"SELECT 1 FROM {SWEEPS} WHERE workspace_id = ? AND sweep = ?", [workspace_id, sweep]):
        tx.execute(f"INSERT INTO {SWEEPS} (workspace_id, sweep) VALUES (?, ?)", [workspace_id, sweep])


PROJECTION = SweepsProjection
