"""Payloads about tokens, about settings of workspaces, agents and crews, and about consent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..core.entry import Id, Timestamp, WorkspaceId
from ..core.grants import MAX_GRANTS, USER, PersonName, Speaker, TypePattern
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


# Payloads of the accounts of people. A password, or a hash of one, is in no event.


class AccountInvited(ControlPayload):
    """A person was invited, or invited again because a password was forgotten or the role changes.

    The link contains 256 random bits, of which only the SHA-256 is recorded. It counts until ``link_expires_at``, and
    once.
    """

    ENTRY_TYPE = "account.invited"
    account_id: Id
    person: PersonName
    role: Role
    workspace_id: WorkspaceId | None = None
    crew_id: Id | None = None
    agent_id: Id | None = None
    link_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    link_expires_at: Timestamp

    def bearer(self) -> Principal:
        """The principal of the person, who speaks only for themselves.

        Raises:
            pydantic.ValidationError: If the role needs an agent or crew that is missing.
        """
        bound = self.model_dump(include={"role", "workspace_id", "crew_id", "agent_id", "person"})
        return Principal(**bound, token_id=self.account_id, speaks_for=(f"{USER}:{self.person}",))


class AccountPasswordSet(ControlPayload):
    """A person set a password: with the link, which ends it, or with the former password."""

    ENTRY_TYPE = "account.password_set"
    account_id: Id
    person: PersonName


class AccountRemoved(ControlPayload):
    """The account of a person was removed; its sessions have ended."""

    ENTRY_TYPE = "account.removed"
    account_id: Id
    person: PersonName


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
