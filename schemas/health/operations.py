"""Operations on the health of a memory: read the latest snapshot, measure now."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictInt

from ..core.entry import Id
from ..core.operation import Access, Answer, AsOf, Effect, Operation, Request, Workspace

HISTORY_MAX_DAYS: Final = 366
"""Maximum number of days of snapshots in one answer: a year."""
Profile = Literal["seed", "legacy"]


class MeasureHealthRequest(Request):
    """Measure the health of the memory now.

    Runs the health sweep and answers with its snapshot.
    """

    crew_id: Id | None = Field(default=None, description="The crew; the whole workspace if absent.")
    profile: Profile = Field(default="seed", description="The formulas: seed, or legacy for comparison.")
    history: Annotated[StrictInt, Field(ge=0, le=HISTORY_MAX_DAYS)] = Field(
        default=0, description="Also the snapshots of this number of days, newest first."
    )
    workspace_id: Workspace = None


class HealthRequest(MeasureHealthRequest):
    """Show the health of the memory: five metrics, the score, its reasons and the next step.

    Reads the latest snapshot and measures nothing. ``embedder`` is the state at the time of the request. AGENT and
    LEAD may name their own crew only.
    """

    as_of: AsOf = None


class HealthSnapshot(Answer):
    """Health of a memory on one day; without a measurement, every field but ``status`` is null."""

    status: str
    date: str | None = None
    measured_at: str | None = None
    score: float | None = None
    band: str | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    next_step: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    model: str | None = None
    rules: int | None = None


class ProposedContradiction(Answer):
    """Two entries that seem to contradict each other, not yet confirmed or rejected by an operator."""

    src: str
    dst: str
    weight: float
    reason: str = ""


class HealthAnswer(HealthSnapshot):
    """The latest snapshot; ``status`` is ok, "no data" (nothing to measure) or "no snapshot yet".

    ``embedder`` is the embedder's current state. Only for OWNER and ADMIN: ``crews`` names the crews that have
    snapshots, and ``review`` lists the proposed contradictions, the likeliest first.
    """

    workspace_id: str
    crew_id: str | None = None
    profile: str = "seed"
    embedder: dict[str, Any] = Field(default_factory=dict)
    crews: tuple[str, ...] | None = None
    review: tuple[ProposedContradiction, ...] | None = None
    history: tuple[HealthSnapshot, ...] = ()
    hint: str = ""
    view_seq: int


HEALTH: Final = Operation(
    name="health",
    request=HealthRequest,
    answer=HealthAnswer,
    route="GET /v1/memory/health",
    effect=Effect.READS,
)
MEASURE_HEALTH: Final = Operation(
    name="measure_health",
    request=MeasureHealthRequest,
    answer=HealthAnswer,
    route="POST /v1/memory/health",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
)
OPERATIONS: Final = (HEALTH, MEASURE_HEALTH)
