"""The tokens that count, as the view ``tokens`` holds them.

Invariant: what is read is what the fold can have written, or the views are damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crew_journal.schemas.errors import ViewsDamaged
from crew_journal.schemas.ports import ViewReader
from crew_journal.schemas.principal import Principal, Role
from crew_journal.services.journal.broker.config import AgentUser
from crew_journal.services.journal.nats_access import nats_user

_COUNTING: Final = """SELECT token_id, sha256, role, workspace_id, crew_id, agent_id, nats_bcrypt
    FROM tokens WHERE revoked_ms IS NULL"""


@dataclass(frozen=True, slots=True)
class FoldedToken:
    """A token that is not revoked: its hash, who bears it, and its NATS user if it counts there, too."""

    sha256: str
    bound: Principal
    user: AgentUser | None


def folded_tokens(views: ViewReader) -> Iterator[FoldedToken]:
    """Every token that is not revoked; blocking.

    Raises:
        ViewsDamaged: If one is none that the fold can have written.
    """
    for token_id, sha256, role, workspace_id, crew_id, agent_id, hashed in views.rows(_COUNTING):
        try:
            bound = Principal(
                token_id=token_id, role=Role(role), workspace_id=workspace_id, crew_id=crew_id, agent_id=agent_id
            )
            user = nats_user(bound, hashed) if hashed is not None else None
        except ValueError as error:
            raise ViewsDamaged(
                f"the views are damaged: table tokens, token {token_id}: not what the journal can have said",
                hint=ViewsDamaged.HINT,
            ) from error
        yield FoldedToken(sha256, bound, user)
