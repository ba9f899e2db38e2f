"""A new token: the fact that is recorded, and the only answer that holds its secret.

Invariant: the event holds a hash of the secret and the fields that its role allows; nothing else is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from ...schemas.catalogue import why_not_granted
from ...schemas.errors import InvalidQuery, NotAllowed
from ...schemas.events.tokens import TokenCreated
from ...schemas.grants import actor_of, persons_of
from ...schemas.operations.tokens import NatsAccess, TokenCreatedAnswer, TokenRecord, TokenRequest
from ...schemas.principal import Principal, Role
from .owner_token import token_hash


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token; ``plaintext`` is not stored. ``nats_access`` if it is valid on NATS, too."""

    plaintext: str
    info: TokenRecord
    nats_access: NatsAccess | None = None

    def answer(self) -> TokenCreatedAnswer:
        """The answer to the caller."""
        return TokenCreatedAnswer(**self.info.model_dump(), token=self.plaintext, nats_access=self.nats_access)


def token_created(
    token_id: str, plaintext: str, workspace_id: str | None, request: TokenRequest, now: datetime
) -> TokenCreated:
    """The fact that a token was made.

    A token that speaks for another and is bound to no agent is bound to the agent of that name: ``keeper``.

    Raises:
        InvalidQuery: If role, crew and agent do not fit together, a grant can never count, or it has expired already.
    """
    role, agent_id = request.role, request.agent_id
    others = len(request.speaks_for) > len(persons_of(request.speaks_for))
    if role.administers and (request.may_publish or others):
        field = "may_publish" if request.may_publish else "speaks_for"
        raise InvalidQuery(
            f"{role.value} tokens may publish all types and name all actors",
            hint=f"leave {field} out, or ask for role AGENT; speaks_for takes persons, like user:maria",
            field=field,
        )
    for refused in filter(None, map(why_not_granted, request.may_publish)):
        raise InvalidQuery(refused, hint="name types that a token can be granted, like keeper.*", field="may_publish")
    if request.expires_at is not None and request.expires_at <= now:
        raise InvalidQuery("expires_at is not in the future", hint="name a later time", field="expires_at")
    if agent_id is None and request.speaks_for and not role.administers:
        kind, name = actor_of(request.speaks_for[0])
        agent_id = name or kind
    try:
        payload = TokenCreated(
            token_id=token_id,
            sha256=token_hash(plaintext),
            workspace_id=workspace_id,
            agent_id=agent_id,
            **request.model_dump(include={"role", "crew_id", "label", "may_publish", "speaks_for", "expires_at"}),
        )
        payload.bearer()
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"]) or "role"
        raise InvalidQuery(
            problem["msg"].removeprefix("Value error, "),
            hint="AGENT needs agent_id, LEAD agent_id and crew_id; OWNER and ADMIN need neither",
            field=field,
        ) from None
    return payload


def workspace_for(principal: Principal, request: TokenRequest) -> str | None:
    """The workspace of a token that is asked for; None for all of them.

    Raises:
        NotAllowed: If the asker's role or workspace does not allow it.
        InvalidQuery: If both one and all workspaces are named.
    """
    if request.role is Role.OWNER and principal.role is not Role.OWNER:
        raise NotAllowed("only an OWNER makes OWNER tokens", hint="ask for role ADMIN, LEAD or AGENT", field="role")
    if request.all_workspaces and principal.workspace_id is not None:
        raise NotAllowed(
            "only a token of all workspaces makes another", hint="leave all_workspaces out", field="all_workspaces"
        )
    if request.all_workspaces and request.workspace_id:
        raise InvalidQuery(
            "workspace_id and all_workspaces exclude each other", hint="give one of the two", field="all_workspaces"
        )
    return None if request.all_workspaces else principal.workspace(request.workspace_id)
