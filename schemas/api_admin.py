"""What crosses HTTP when a node or a workspace is administered: priorities, sweeps, tokens, dead letters, settings.

Invariant: as of ``api``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

from crew_journal.schemas.api import Answer
from crew_journal.schemas.entry import Id, Priority, Timestamp, WorkspaceId
from crew_journal.schemas.grants import MAX_GRANTS, Speaker, TypePattern
from crew_journal.schemas.principal import Role


class PriorityRequest(BaseModel):
    """The live priority that an entry is to have, and why.

    Attributes:
        priority: The priority.
        reason: Why, for people.
        min_seq: Wait until the views have passed this sequence: mark what was just written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    priority: Priority
    reason: str = Field(min_length=1, max_length=1_000)
    min_seq: StrictInt | None = Field(default=None, ge=0, le=2**63 - 1)

    @field_validator("reason")
    @classmethod
    def _says_why(cls, reason: str) -> str:
        if not reason.strip():
            raise ValueError("must not be blank")
        return reason


class PriorityAnswer(Answer):
    """An entry's live priority; ``seq`` of the change, null if it had that priority already."""

    entry_id: str
    priority: Priority
    previous_priority: Priority
    changed: bool
    seq: int | None


class SweepRequest(BaseModel):
    """Which sweep is to run now, in which workspace (``default`` for a token of all that names none)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sweep: Literal["decay", "health", "index"]
    workspace_id: WorkspaceId | None = None


class WorkspaceSettingsAnswer(Answer):
    """Settings of a workspace."""

    workspace_id: str
    cost_nudge_usd: float
    view_seq: int


class TokenRequest(BaseModel):
    """What a new token is bound to."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    role: Role
    workspace_id: WorkspaceId | None = None
    all_workspaces: bool = False
    crew_id: Id | None = None
    agent_id: Id | None = None
    label: str = Field(default="", max_length=128)
    nats: bool = Field(
        default=False, description="Whether it is to be the password of a NATS user, too: AGENT and LEAD."
    )
    may_publish: tuple[TypePattern, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="For AGENT and LEAD: further entry types, or prefix.*, to publish.",
    )
    speaks_for: tuple[Speaker, ...] = Field(
        default=(), max_length=MAX_GRANTS, description="For AGENT and LEAD: further actors, like keeper or keeper:gate."
    )
    expires_at: Timestamp | None = Field(default=None, description="From when on it is refused; never if absent.")


class TokenRecord(Answer):
    """A token without its secret; ``nats``: whether it counts on NATS, too. Times are milliseconds since the epoch.

    ``may_publish`` and ``speaks_for`` are granted beyond its role; ``expires_ms`` is when it ends, null for never.
    """

    token_id: str
    role: Role
    workspace_id: str | None
    crew_id: str | None
    agent_id: str | None
    label: str
    created_ms: int
    revoked_ms: int | None
    nats: bool = False
    may_publish: tuple[str, ...] = ()
    speaks_for: tuple[str, ...] = ()
    expires_ms: int | None = None


class TokensAnswer(Answer):
    """Tokens, oldest first."""

    tokens: tuple[TokenRecord, ...]


class NatsAccess(Answer):
    """How an agent appends over NATS: it sends entries as requests on ``subject``, of at most ``max_bytes`` bytes each."""

    address: str
    user: str
    password: str = Field(repr=False)
    subject: str
    max_bytes: int


class TokenCreatedAnswer(TokenRecord):
    """A new token; ``token`` is the secret and is shown this once. ``nats_access`` if it counts on NATS, too."""

    token: str
    nats_access: NatsAccess | None = None


class DeadLetter(Answer):
    """An event that a projection could not fold."""

    projection: str
    version: int
    seq: int
    subject: str
    reason: str
    parked_ms: int
    state: str
    workspace_id: str


class DeadLettersAnswer(Answer):
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetter, ...]


class DeadLetterAnswer(Answer):
    """What became of a dead letter; ``new_seq`` if it was published again."""

    seq: int
    state: str
    new_seq: int | None = None


class BrokerAnswer(Answer):
    """How a reactor in another process reaches the broker."""

    url: str
    user: str | None
    password: str | None = Field(default=None, repr=False)


class SweepAnswer(Answer):
    """How a sweep on request ended."""

    workspace_id: str
    sweep: str
    due: str
    seq: int
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = None


class ReindexAnswer(Answer):
    """A reindex was recorded at ``seq`` and the index sweep is due.

    ``refused`` texts, given up by the model before, are tried again; ``missing`` entries had no vector when it was asked.
    """

    workspace_id: str
    policy: int
    model: str | None
    seq: int
    refused: int
    missing: int
    due: str
