"""The table of sweeps: when each was last due and last finished."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Ms, Seq, Table

SWEEPS_PROJECTION: Final = "sweeps"


class SweepRow(NamedTuple):
    """The last tick and the last finish of a sweep, NULL if it never happened."""

    workspace_id: str
    sweep: str
    due_ms: Ms | None = None  # the due time in the tick
    tick_seq: Seq | None = None
    ticked_ms: Ms | None = None  # the broker's time of the tick
    finished_due_ms: Ms | None = None
    finished_seq: Seq | None = None
    finished_ms: Ms | None = None
    counts: str | None = None  # JSON text
    error: str | None = None


SWEEPS: Final = Table("memory_sweeps", SweepRow, SWEEPS_PROJECTION, key=("workspace_id", "sweep"))
