"""What crosses HTTP when a node or a workspace is administered: priorities, sweeps, tokens, dead letters, settings.

Invariant: as of ``api``.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.entry import Id, Timestamp, WorkspaceId
from crew_journal.schemas.grants import MAX_GRANTS, Speaker, TypePattern
from crew_journal.schemas.operations.operation import Answer
from crew_journal.schemas.principal import Role


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


class BrokerAnswer(Answer):
    """How a reactor in another process reaches the broker."""

    url: str
    user: str | None
    password: str | None = Field(default=None, repr=False)
