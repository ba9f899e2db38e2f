"""``memory_sweeps``: when each sweep was last due and last finished, per workspace.

Invariant: ``due_ms`` never goes back, whatever comes late; ``due_ms`` without a ``finished_due_ms`` of the same time is a
sweep that is due or under way, or whose consumer is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final

from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.sweeps import SweepFinished, SweepTicked
from ...schemas.timestamps import parse_ts, to_ms
from ...schemas.views import SWEEPS, SWEEPS_PROJECTION
from ..folds.payloads import json_text, payload_of
from ..projection import Batch, FoldTransaction

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {SWEEPS} (
    workspace_id VARCHAR NOT NULL, sweep VARCHAR NOT NULL, due_ms BIGINT, tick_seq UBIGINT, ticked_ms BIGINT,
    finished_due_ms BIGINT, finished_seq UBIGINT, finished_ms BIGINT, counts VARCHAR, error VARCHAR)"""


@dataclass(slots=True)
class _Row:
    """One sweep of one workspace; the fields are the table's columns, in their order."""

    workspace_id: str
    sweep: str
    due_ms: int | None = None
    tick_seq: int | None = None
    ticked_ms: int | None = None
    finished_due_ms: int | None = None
    finished_seq: int | None = None
    finished_ms: int | None = None
    counts: str | None = None
    error: str | None = None

    def tick(self, due_ms: int, event: EntryRecorded) -> None:
        """A later due time than any before."""
        if self.due_ms is None or self.due_ms < due_ms:
            self.due_ms, self.tick_seq, self.ticked_ms = due_ms, event.seq, event.published_ms

    def finish(self, due_ms: int, event: EntryRecorded, counts: str, error: str | None) -> None:
        """The end of the latest sweep that ended."""
        if self.finished_due_ms is None or self.finished_due_ms <= due_ms:
            self.finished_due_ms, self.finished_seq, self.finished_ms = due_ms, event.seq, event.published_ms
            self.counts, self.error = counts, error


class SweepsProjection:
    """Folds ``sweep.ticked`` and ``sweep.finished``."""

    name: ClassVar[str] = SWEEPS_PROJECTION
    version: ClassVar[int] = 2
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (SWEEPS,)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Keep the latest tick and finish of each workspace and sweep; the table is small and read whole."""
        ticks, ends = batch.control(SweepTicked.ENTRY_TYPE), batch.control(SweepFinished.ENTRY_TYPE)
        if not ticks and not ends:
            return
        rows = {(row[0], row[1]): _Row(*row) for row in tx.rows(f"SELECT * FROM {SWEEPS}")}
        touched: dict[tuple[str, str], _Row] = {}

        def row_of(event: EntryRecorded, sweep: str) -> _Row:
            name = (event.workspace_id, sweep)
            row = touched[name] = rows.setdefault(name, _Row(*name))
            return row

        for event in ticks:
            tick = payload_of(event, SweepTicked)
            row_of(event, tick.sweep).tick(_instant(event, tick.due), event)
        for event in ends:
            done = payload_of(event, SweepFinished)
            row_of(event, done.sweep).finish(_instant(event, done.due), event, json_text(done.counts), done.error)
        for name in touched:
            tx.execute(f"DELETE FROM {SWEEPS} WHERE workspace_id = ? AND sweep = ?", name)
        columns = {field.name: [getattr(row, field.name) for row in touched.values()] for field in fields(_Row)}
        tx.insert(SWEEPS, columns)


def _instant(event: EntryRecorded, due: str) -> int:
    try:
        return to_ms(parse_ts(due))
    except ValueError as error:
        raise FoldError(f"the sweep event at {event.seq} has no valid due: {error}") from None


PROJECTION = SweepsProjection
