"""Operations on tokens, and the address of the broker for reactors in other processes."""

from __future__ import annotations

from typing import Final

from pydantic import Field, StrictBool

from ..entry import Id, Timestamp, WorkspaceId
from ..grants import MAX_GRANTS, Speaker, TypePattern
from ..principal import Role
from .operation import Access, Answer, Effect, Operation, Request, Workspace


class TokenRequest(Request):
    """Create a token; only this answer holds its secret.

    With ``nats``, the secret is also a NATS password, and ``nats_access`` holds address, user and subject.
    """

    role: Role = Field(description="OWNER, ADMIN, LEAD or AGENT.", examples=["AGENT"])
    workspace_id: WorkspaceId | None = Field(default=None, description="Its workspace; `default` if absent.")
    all_workspaces: StrictBool = Field(
        default=False, description="For OWNER: valid for all workspaces; each request names one."
    )
    crew_id: Id | None = Field(default=None, description="Its crew; LEAD needs one.")
    agent_id: Id | None = Field(default=None, description="Its agent; LEAD and AGENT need one.", examples=["ada"])
    label: str = Field(default="", max_length=128, description="Purpose of the token.")
    nats: StrictBool = Field(default=False, description="For LEAD and AGENT: also make it a NATS password.")
    may_publish: tuple[TypePattern, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="For LEAD and AGENT: further entry types, or prefix.*, that it may publish.",
    )
    speaks_for: tuple[Speaker, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="Persons whose own words it submits, such as user:maria. For LEAD and AGENT also further actors that it "
        "may speak for, such as keeper or keeper:gate.",
    )
    expires_at: Timestamp | None = Field(default=None, description="When it expires; never if absent.")


class TokensRequest(Request):
    """List tokens: ids, bindings, grants and times, without secrets.

    Covers the token's workspace. A token of all workspaces names one, or gets those of all.
    """

    workspace_id: Workspace = None


class RevokeTokenRequest(Request):
    """Revoke a token; it is refused from now on.

    Its live tails and its NATS connections are closed.
    """

    token_id: str = Field(description="Its id, as `token list` prints it.")


class BrokerRequest(Request):
    """Show the broker's address for reactors in other processes; the answer holds the service's password."""


class TokenRecord(Answer):
    """A token without its secret. Times are milliseconds since the epoch.

    ``nats``: whether it is also a NATS password. ``may_publish`` and ``speaks_for`` are grants beyond its role.
    ``expires_ms`` is null if it does not expire.
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
    """A new token; ``token`` is the secret and cannot be read again. ``nats_access`` if it is also a NATS password."""

    token: str
    nats_access: NatsAccess | None = None


class TokenRevokedAnswer(Answer):
    """The revoked token."""

    token_id: str
    revoked: bool = True


class BrokerAnswer(Answer):
    """Address, user and password of the broker, for reactors in other processes."""

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
