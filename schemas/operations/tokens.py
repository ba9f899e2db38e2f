"""Tokens: who may ask, bound to workspace, role, crew and agent; and how a reactor elsewhere reaches the broker."""

from __future__ import annotations

from typing import Final

from pydantic import Field, StrictBool

from ..entry import Id, Timestamp, WorkspaceId
from ..grants import MAX_GRANTS, Speaker, TypePattern
from ..principal import Role
from .operation import Access, Answer, Effect, Operation, Request, Workspace


class TokenRequest(Request):
    """Make a token; the answer holds its secret, this once.

    With ``nats`` the secret is a NATS password, too, and ``nats_access`` says where, as whom and on which subject.
    """

    role: Role = Field(description="OWNER, ADMIN, LEAD or AGENT.", examples=["AGENT"])
    workspace_id: WorkspaceId | None = Field(default=None, description="Its workspace; `default` if absent.")
    all_workspaces: StrictBool = Field(
        default=False, description="For an OWNER: every workspace, named in each request."
    )
    crew_id: Id | None = Field(default=None, description="Its crew; LEAD needs one.")
    agent_id: Id | None = Field(default=None, description="Its agent; LEAD and AGENT need one.", examples=["ada"])
    label: str = Field(default="", max_length=128, description="What it is for.")
    nats: StrictBool = Field(default=False, description="For LEAD and AGENT: whether it is a NATS password, too.")
    may_publish: tuple[TypePattern, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="For LEAD and AGENT: further entry types, or prefix.*, to publish.",
    )
    speaks_for: tuple[Speaker, ...] = Field(
        default=(), max_length=MAX_GRANTS, description="For LEAD and AGENT: further actors, like keeper or keeper:gate."
    )
    expires_at: Timestamp | None = Field(default=None, description="From when on it is refused; never if absent.")


class TokensRequest(Request):
    """List tokens: ids, bindings, grants, when they expire or were revoked; never their secrets.

    Of the token's workspace; of all for a token of all workspaces that names none.
    """

    workspace_id: Workspace = None


class RevokeTokenRequest(Request):
    """Revoke a token; it is refused from now on.

    Its live tails and its connections to the broker are cut.
    """

    token_id: str = Field(description="Its id, as `token list` shows it.")


class BrokerRequest(Request):
    """Show how reactors in other processes reach the broker; the answer holds the password of the service."""


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


class TokenRevokedAnswer(Answer):
    """The token that is refused from now on."""

    token_id: str
    revoked: bool = True


class BrokerAnswer(Answer):
    """How a reactor in another process reaches the broker."""

    url: str
    user: str | None
    password: str | None = Field(default=None, repr=False)


CREATE_TOKEN: Final = Operation(
    name="create_token",
    request=TokenRequest,
    answer=TokenCreatedAnswer,
    route="POST /v1/admin/tokens",
    effect=Effect.CREATES,
    access=Access.ADMINISTRATOR,
    errors=(409,),
    repeatable=False,
)
TOKENS: Final = Operation(
    name="tokens",
    request=TokensRequest,
    answer=TokensAnswer,
    route="GET /v1/admin/tokens",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    command="token list",
)
REVOKE_TOKEN: Final = Operation(
    name="revoke_token",
    request=RevokeTokenRequest,
    answer=TokenRevokedAnswer,
    route="DELETE /v1/admin/tokens/{token_id}",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="token revoke",
    repeatable=False,
)
BROKER: Final = Operation(
    name="broker",
    request=BrokerRequest,
    answer=BrokerAnswer,
    route="GET /v1/admin/broker",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
)
OPERATIONS: Final = (CREATE_TOKEN, TOKENS, REVOKE_TOKEN, BROKER)
"""In the order of the docs."""
