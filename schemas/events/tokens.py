"""Payloads of the decisions about tokens."""

from __future__ import annotations

from pydantic import Field

from ..entry import Id, Timestamp, WorkspaceId
from ..grants import MAX_GRANTS, Speaker, TypePattern
from ..principal import BCRYPT_HASH, Principal, Role
from ..timestamps import to_ms
from .payload import ControlPayload


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
