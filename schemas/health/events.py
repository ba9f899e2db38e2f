"""Payload of a health snapshot."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ..core.entry import Id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind

Band = Literal["red", "yellow", "green"]


class HealthMetrics(BaseModel):
    """Five metrics in [0, 100]; None for a metric that could not be measured."""

    model_config = STORED
    freshness: float | None = Field(ge=0.0, le=100.0)
    coverage: float | None = Field(ge=0.0, le=100.0)
    coherence: float | None = Field(ge=0.0, le=100.0)
    efficiency: float | None = Field(ge=0.0, le=100.0)
    reachability: float | None = Field(ge=0.0, le=100.0)


class HealthRecorded(ControlPayload):
    """Health of the memory of a workspace or a crew on one day; the last snapshot of a day counts.

    Attributes:
        crew_id: The crew, None for the workspace as a whole.
        legacy: The metrics by the formulas of the project that seed 1 describes, for comparison.
        reasons: Reasons for the band, one sentence each.
        next_step: The next step for the operator; empty if absent.
        counts: Numbers behind the metrics (embeddable, indexed, linked, searches …).
    """

    ENTRY_TYPE = "memory.health_recorded"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    crew_id: Id | None = None
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    rules: int = Field(ge=1)
    metrics: HealthMetrics
    score: float | None = Field(default=None, ge=0.0, le=100.0)
    band: Band | None = None
    legacy: HealthMetrics
    legacy_score: float | None = Field(default=None, ge=0.0, le=100.0)
    reasons: tuple[str, ...] = ()
    next_step: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    model: str | None = None
