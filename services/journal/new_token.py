"""A token that is being made: the fact that it is, and what the one answer shows that holds its secret.

Invariant: the fact holds a hash of the secret, and binds what its role allows; nothing else is ever published.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from crew_journal.schemas.api_admin import NatsAccess, TokenRecord
from crew_journal.schemas.errors import InvalidQuery
from crew_journal.schemas.events.control import TokenCreated
from crew_journal.schemas.principal import Principal, Role
from crew_journal.services.journal.owner_token import token_hash


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made; ``plaintext`` is not shown again. ``nats_access`` if it counts on NATS, too."""

    plaintext: str
    info: TokenRecord
    nats_access: NatsAccess | None = None


def token_created(
    token_id: str,
    plaintext: str,
    *,
    role: Role,
    workspace_id: str | None,
    crew_id: str | None,
    agent_id: str | None,
    label: str,
) -> TokenCreated:
    """The fact that a token was made.

    Raises:
        InvalidQuery: If role, crew and agent do not fit together.
    """
    try:
        payload = TokenCreated(
            token_id=token_id,
            sha256=token_hash(plaintext),
            role=role,
            workspace_id=workspace_id,
            crew_id=crew_id,
            agent_id=agent_id,
            label=label,
        )
        bound_by(payload)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"]) or "role"
        raise InvalidQuery(
            problem["msg"].removeprefix("Value error, "),
            hint="AGENT needs agent_id, LEAD agent_id and crew_id; OWNER and ADMIN need neither",
            field=field,
        ) from None
    return payload


def bound_by(made: TokenCreated) -> Principal:
    """Who bears the token.

    Raises:
        pydantic.ValidationError: If its role needs more than it is bound to.
    """
    return Principal(
        token_id=made.token_id,
        role=made.role,
        workspace_id=made.workspace_id,
        crew_id=made.crew_id,
        agent_id=made.agent_id,
    )
