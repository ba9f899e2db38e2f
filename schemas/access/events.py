"""Payloads about tokens, about settings of workspaces, agents and crews, and about consent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..core.entry import Id, Timestamp, WorkspaceId
from ..core.grants import MAX_GRANTS, Speaker, TypePattern
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind
from ..core.principal import BCRYPT_HASH, Principal, Role
from ..core.recorded_settings import AgentSettings, CrewSettings, WorkspaceSettings
from ..core.timestamps import to_ms
from ..operators.events import KeyId


class TokenCreated(ControlPayload):
    """A token was created. Only the SHA-256 of its 256 random bits is recorded.

    ``may_publish`` and ``speaks_for`` are grants beyond the role (``schemas.core.grants``). The token is refused from
    ``expires_at`` on.
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
        """The principal of the token.

        Raises:
            pydantic.ValidationError: If the role needs an agent or crew that is missing.
        """
        bound = self.model_dump(include=set(Principal.model_fields))
        return Principal(**bound, expires_ms=None if self.expires_at is None else to_ms(self.expires_at))


class TokenNatsAllowed(ControlPayload):
    """A token is also the password of a NATS user, whose name is the token's id. Only a bcrypt hash is recorded."""

    ENTRY_TYPE = "token.nats_allowed"
    token_id: Id
    bcrypt: str = Field(pattern=BCRYPT_HASH)


class TokenRevoked(ControlPayload):
    """A token was revoked."""

    ENTRY_TYPE = "token.revoked"
    token_id: Id


# Payloads of the settings of workspaces, agents and crews, and of consent.


class WorkspaceConfigured(ControlPayload):
    """All settings of a workspace; the last event counts."""

    ENTRY_TYPE = "workspace.configured"
    cost_nudge_usd: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def chosen(self) -> WorkspaceSettings:
        """The settings, typed."""
        return WorkspaceSettings.of({**self.settings, "cost_nudge_usd": self.cost_nudge_usd})


class AgentRegistered(AgentSettings, ControlPayload):
    """All settings of an agent; the last event counts."""

    ENTRY_TYPE = "agent.registered"


class CrewRegistered(CrewSettings, ControlPayload):
    """All settings of a crew; the last event counts."""

    ENTRY_TYPE = "crew.registered"


class ConsentChanged(ControlPayload):
    """A data subject opted in or out.

    ``key_id`` names the key with which the person's name was hashed; None in events of earlier versions.
    """

    ENTRY_TYPE = "consent.changed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    subject_hash: str
    granted: bool
    key_id: KeyId | None = None
