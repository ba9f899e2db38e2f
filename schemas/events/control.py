"""Payloads of the control entries that the service publishes: decisions, recorded like everything else.

Invariant: each model is frozen and versioned; ``schema_version`` of the entry is the model's ``VERSION``, and
``tests/golden`` holds one file per type and version. A stored payload may hold fields of a newer version, which are
ignored; a field that the service means to write and the model does not have is an error of mypy.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..entry import Id, Priority, Timestamp, WorkspaceId
from ..grants import MAX_GRANTS, Speaker, TypePattern
from ..principal import BCRYPT_HASH, Principal, Role
from ..timestamps import to_ms

STORED: Final = ConfigDict(frozen=True, extra="ignore")
"""Of every model that is read from the stream, and of those inside it."""


class ControlPayload(BaseModel):
    """Base of every control payload."""

    model_config = STORED
    ENTRY_TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1


class TokenCreated(ControlPayload):
    """A token was minted. Only the SHA-256 of its 256 random bits is recorded.

    ``may_publish`` and ``speaks_for`` are granted beyond the role (``schemas.grants``); from ``expires_at`` it is refused.
    """

    ENTRY_TYPE = "token.created"
    token_id: Id
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    role: Role
    workspace_id: WorkspaceId | None = None
    crew_id: Id | None = None
    agent_id: Id | None = None
    label: str = Field(default="", max_length=128)
    may_publish: tuple[TypePattern, ...] = Field(default=(), max_length=MAX_GRANTS)
    speaks_for: tuple[Speaker, ...] = Field(default=(), max_length=MAX_GRANTS)
    expires_at: Timestamp | None = None

    def bearer(self) -> Principal:
        """Who bears the token.

        Raises:
            pydantic.ValidationError: If its role needs more than it is bound to.
        """
        bound = self.model_dump(include=set(Principal.model_fields))
        return Principal(**bound, expires_ms=None if self.expires_at is None else to_ms(self.expires_at))


class TokenNatsAllowed(ControlPayload):
    """An agent's token is the password of a NATS user of its own, too. Only its bcrypt hash is recorded.

    The user is called as the token's id, and may publish on the subject of the token's workspace, crew and agent.
    """

    ENTRY_TYPE = "token.nats_allowed"
    token_id: Id
    bcrypt: str = Field(pattern=BCRYPT_HASH)


class TokenRevoked(ControlPayload):
    """A token no longer counts."""

    ENTRY_TYPE = "token.revoked"
    token_id: Id


class EmbeddingsActivated(ControlPayload):
    """Recall uses this model from here on; in the system workspace it is the default of all."""

    ENTRY_TYPE = "embeddings.activated"
    model: str = Field(min_length=1, max_length=96)
    embedder: Literal["ollama", "minilm", "none"]
    dim: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=500)


class EventParked(ControlPayload):
    """A projection could not fold an event; the event lies in DEADLETTER."""

    ENTRY_TYPE = "projection.event_parked"
    projection: str
    version: int
    seq: int = Field(ge=1)
    subject: str
    reason: str = Field(max_length=1_000)


class DeadLetterRetried(ControlPayload):
    """A parked event was published again as a new one."""

    ENTRY_TYPE = "projection.dead_letter_retried"
    projection: str
    seq: int = Field(ge=1)
    new_seq: int = Field(ge=1)


class DeadLetterDiscarded(ControlPayload):
    """An operator decided that a parked event needs nothing more."""

    ENTRY_TYPE = "projection.dead_letter_discarded"
    projection: str
    seq: int = Field(ge=1)
    reason: str = Field(default="", max_length=500)


class PriorityChanged(ControlPayload):
    """An operator changed an entry's live priority."""

    ENTRY_TYPE = "memory.priority_changed"
    target_entry_id: Id
    previous_priority: Priority
    new_priority: Priority
    reason: str = Field(min_length=1, max_length=1_000)


class ReferencedEntry(BaseModel):
    """One entry that reached prompts, and how often since the last batch."""

    model_config = STORED
    entry_id: Id
    count: int = Field(ge=1)


class MemoryReferenced(ControlPayload):
    """Entries reached a prompt: batched, so that recall itself writes nothing."""

    ENTRY_TYPE = "memory.referenced"
    entries: tuple[ReferencedEntry, ...] = Field(min_length=1, max_length=1_000)


class MemorySearched(ControlPayload):
    """A recall was answered; at most a few a second are recorded, to compare models on and to judge efficiency.

    Attributes:
        query: What was asked.
        scope: own, crew_shared or workspace.
        crew_id: The asker's crew.
        agent_id: The asker.
        recipe: The recipe that ranked.
        model: Model of the vectors that took part, None if none did.
        hit_ids: Entries returned, best first.
        mean_cosine: Mean cosine of the hits that have a vector, None if none has.
    """

    ENTRY_TYPE = "memory.searched"
    query: str = Field(min_length=1, max_length=4_000)
    scope: Literal["own", "crew_shared", "workspace"]
    crew_id: Id | None = None
    agent_id: Id | None = None
    recipe: str = Field(min_length=1, max_length=64)
    model: str | None = Field(default=None, max_length=96)
    hit_ids: tuple[Id, ...] = Field(default=(), max_length=100)
    mean_cosine: float | None = Field(default=None, ge=-1.0, le=1.0, allow_inf_nan=False)


Relation = Literal["similar", "supports", "contradicts"]


class RelationAsserted(ControlPayload):
    """Somebody says how two entries relate; it outweighs what a reactor proposed."""

    ENTRY_TYPE = "memory.relation_asserted"
    src_entry_id: Id
    src_seq: int = Field(ge=1)
    dst_entry_id: Id
    dst_seq: int = Field(ge=1)
    relation: Relation
    weight: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    reason: str = Field(default="", max_length=1_000)


class RelationRetracted(ControlPayload):
    """A relation, asserted or proposed, is not believed any more; a reactor does not bring it back."""

    ENTRY_TYPE = "memory.relation_retracted"
    src_entry_id: Id
    src_seq: int = Field(ge=1)
    dst_entry_id: Id
    dst_seq: int = Field(ge=1)
    relation: Relation
    reason: str = Field(default="", max_length=1_000)


Band = Literal["red", "yellow", "green"]


class HealthMetrics(BaseModel):
    """Five metrics in [0, 100], None where there is nothing to measure."""

    model_config = STORED
    freshness: float | None = Field(ge=0.0, le=100.0)
    coverage: float | None = Field(ge=0.0, le=100.0)
    coherence: float | None = Field(ge=0.0, le=100.0)
    efficiency: float | None = Field(ge=0.0, le=100.0)
    reachability: float | None = Field(ge=0.0, le=100.0)


class HealthRecorded(ControlPayload):
    """The health of a workspace's or a crew's memory on a day; the last one of a day counts.

    Attributes:
        crew_id: The crew, None for the workspace as a whole.
        date: Day in UTC, YYYY-MM-DD.
        rules: Version of ``rules/health``.
        metrics: The metrics as we define them.
        score: Their weighted mean, None for "no data".
        band: Its band, None for "no data".
        legacy: The same by the formulas of the project seed 1 describes, for comparison.
        legacy_score: Their weighted sum.
        reasons: Why the band is what it is, a sentence each.
        next_step: What the operator should do, empty if nothing.
        counts: Numbers behind the metrics (embeddable, indexed, linked, searches …).
        model: The active model, None if there is none.
    """

    ENTRY_TYPE = "memory.health_recorded"
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


class NudgeOffered(ControlPayload):
    """A nudge was handed to an orchestrator; each kind once per session."""

    ENTRY_TYPE = "memory.nudge_offered"
    agent_id: Id
    session_id: Id
    kind: Literal["memory", "cost"]


class WorkspaceConfigured(ControlPayload):
    """A workspace's settings, whole: the last one counts."""

    ENTRY_TYPE = "workspace.configured"
    cost_nudge_usd: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    settings: dict[str, Any] = Field(default_factory=dict)


class EmbeddingsAdded(ControlPayload):
    """A further model is filled in the background, beside the active one; recorded in the system workspace."""

    ENTRY_TYPE = "embeddings.added"
    model: str = Field(min_length=1, max_length=96)
    embedder: Literal["ollama", "minilm"]


class EmbeddingsDropped(ControlPayload):
    """A model's vectors are not wanted any more: nothing fills them and the fold forgets them."""

    ENTRY_TYPE = "embeddings.dropped"
    model: str = Field(min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


class ReindexRequested(ControlPayload):
    """Entries are judged anew by a version of the embed policy; tombstones of a model are tried again."""

    ENTRY_TYPE = "embeddings.reindex_requested"
    policy: int = Field(ge=1)
    model: str | None = Field(default=None, max_length=96)
    reason: str = Field(default="", max_length=500)


class SweepFinished(ControlPayload):
    """What a sweep did, so that a dead one does not look like a quiet day."""

    ENTRY_TYPE = "sweep.finished"
    sweep: Literal["decay", "health", "index", "compaction", "consolidation", "operators"]
    due: str
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = Field(default=None, max_length=500)


class SweepTicked(ControlPayload):
    """A sweep is due; its folds and reactors take the time from ``due`` (RFC 3339, UTC).

    One tick for each workspace, sweep and due time, with a deterministic id, however many nodes keep time.
    """

    ENTRY_TYPE = "sweep.ticked"
    sweep: Literal["decay", "health", "index", "compaction", "consolidation", "operators"]
    due: str


MODEL_DECISIONS: Final = (EmbeddingsAdded.ENTRY_TYPE, EmbeddingsActivated.ENTRY_TYPE, EmbeddingsDropped.ENTRY_TYPE)
"""Entry types that decide which models are filled, and which one recall uses."""


class ConsentChanged(ControlPayload):
    """A data subject opted in or out (contract §1: first-class here)."""

    ENTRY_TYPE = "consent.changed"
    subject_hash: str
    granted: bool


class AgentRegistered(ControlPayload):
    """An agent's settings, whole: the last one counts."""

    ENTRY_TYPE = "agent.registered"
    agent_id: Id
    crew_id: Id | None = None
    memory_walk_depth: int = Field(default=0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict)


class CrewRegistered(ControlPayload):
    """A crew's settings, whole: the last one counts."""

    ENTRY_TYPE = "crew.registered"
    crew_id: Id
    settings: dict[str, Any] = Field(default_factory=dict)


def control_payloads() -> dict[str, type[ControlPayload]]:
    """Every control payload model by its entry type."""
    from . import erasure  # noqa: F401  # it registers its own, and is built on this module

    return {model.ENTRY_TYPE: model for model in ControlPayload.__subclasses__()}
