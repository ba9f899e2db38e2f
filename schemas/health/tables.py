"""The table of health snapshots."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Int32, Ms, Seq, Table

HEALTH_PROJECTION: Final = "health"


class HealthRow(NamedTuple):
    """The health of the memory of a workspace (crew NULL) or crew on a day."""

    workspace_id: str
    crew_id: str | None
    snapshot_date: str
    measured_at: Ms
    freshness: float | None
    coverage: float | None
    coherence: float | None
    efficiency: float | None
    reachability: float | None
    score: float | None
    band: str | None
    legacy_freshness: float | None
    legacy_coverage: float | None
    legacy_coherence: float | None
    legacy_efficiency: float | None
    legacy_reachability: float | None
    legacy_score: float | None
    reasons: str  # JSON list
    next_step: str
    counts: str  # JSON object
    model: str | None
    rules: Int32
    seq: Seq


HEALTH_SNAPSHOTS: Final = Table(
    "memory_health_snapshots", HealthRow, HEALTH_PROJECTION, key=("workspace_id", "crew_id", "snapshot_date")
)
