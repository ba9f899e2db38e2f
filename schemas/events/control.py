"""Payloads of the control entries that the service publishes: decisions, recorded like everything else.

Invariant: each model is frozen, closed and versioned; ``schema_version`` of the entry is the model's ``VERSION``,
and ``tests/golden`` holds one file per type and version.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.entry import Id, Priority, WorkspaceId
from crew_journal.schemas.principal import Role


class ControlPayload(BaseModel):
    """Base of every control payload."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    ENTRY_TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1


class TokenCreated(ControlPayload):
    """A token was minted. Only the SHA-256 of its 256 random bits is recorded."""

    ENTRY_TYPE = "token.created"
    token_id: Id
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    role: Role
    workspace_id: WorkspaceId | None = None
    crew_id: Id | None = None
    agent_id: Id | None = None
    label: str = Field(default="", max_length=128)


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

    model_config = ConfigDict(frozen=True, extra="forbid")
    entry_id: Id
    count: int = Field(ge=1)


class MemoryReferenced(ControlPayload):
    """Entries reached a prompt: batched, so that recall itself writes nothing."""

    ENTRY_TYPE = "memory.referenced"
    entries: tuple[ReferencedEntry, ...] = Field(min_length=1, max_length=1_000)


class SweepTicked(ControlPayload):
    """A sweep is due; its folds and reactors take the time from ``due`` (RFC 3339, UTC)."""

    ENTRY_TYPE = "sweep.ticked"
    sweep: Literal["decay", "health", "index", "compaction", "consolidation", "operators"]
    due: str


class ErasureRequested(ControlPayload):
    """Raises the fence: ids, or a keyed hash of the data subject; no text."""

    ENTRY_TYPE = "erasure.requested"
    erasure_id: Id
    entry_ids: tuple[Id, ...] = ()
    subject_hash: str | None = None


class ErasureScoped(ControlPayload):
    """The closed set that is erased: every id and sequence."""

    ENTRY_TYPE = "erasure.scoped"
    erasure_id: Id
    entry_ids: tuple[Id, ...]
    seqs: tuple[int, ...]


class ErasureCompleted(ControlPayload):
    """The receipt."""

    ENTRY_TYPE = "erasure.completed"
    erasure_id: Id
    seqs: tuple[int, ...]
    counts: dict[str, int] = Field(default_factory=dict)


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
    return {model.ENTRY_TYPE: model for model in ControlPayload.__subclasses__()}
