"""The tokens as the view ``tokens`` holds them: those that count, and the records that are listed.

Invariant: a row that the fold cannot have written means that the views are damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...schemas.errors import ViewsDamaged
from ...schemas.operations.tokens import TokenRecord
from ...schemas.ports import ViewReader
from ...schemas.principal import Principal, Role
from ..journal.broker.config import AgentUser
from .nats_access import nats_user

_COUNTING: Final = """SELECT token_id, sha256, role, workspace_id, crew_id, agent_id, nats_bcrypt, may_publish, speaks_for,
    expires_ms FROM tokens WHERE revoked_ms IS NULL"""
_FIELDS: Final = tuple(TokenRecord.model_fields)
_COLUMNS: Final = ", ".join("nats_bcrypt IS NOT NULL" if name == "nats" else name for name in _FIELDS)
_RECORDS: Final = f"SELECT {_COLUMNS} FROM tokens WHERE $1 IS NULL OR workspace_id = $1 ORDER BY created_ms, token_id"


@dataclass(frozen=True, slots=True)
class FoldedToken:
    """A token that is not revoked, expired or not: its hash, its bearer, and its NATS user if it is valid on NATS, too."""

    sha256: str
    bound: Principal
    user: AgentUser | None


def folded_tokens(views: ViewReader) -> Iterator[FoldedToken]:
    """Every token that is not revoked; blocking.

    Raises:
        ViewsDamaged: If one is none that the fold can have written.
    """
    for token_id, sha256, role, workspace_id, crew_id, agent_id, hashed, types, actors, expires_ms in views.rows(
        _COUNTING
    ):
        try:
            bound = Principal(
                token_id=token_id, role=Role(role), workspace_id=workspace_id, crew_id=crew_id, agent_id=agent_id,
                may_publish=tuple(types.split()), speaks_for=tuple(actors.splitlines()), expires_ms=expires_ms,
            )  # fmt: skip
            user = nats_user(bound, hashed) if hashed is not None else None
        except ValueError as error:
            raise ViewsDamaged(
                f"the views are damaged: table tokens, token {token_id}: not a row that the journal can contain",
                hint=ViewsDamaged.HINT,
            ) from error
        yield FoldedToken(sha256, bound, user)


def token_records(views: ViewReader, workspace_id: str | None) -> tuple[TokenRecord, ...]:
    """Every token of a workspace, or of all, oldest first, without secrets; blocking."""
    records = (dict(zip(_FIELDS, row, strict=True)) for row in views.rows(_RECORDS, (workspace_id,)))
    return tuple(
        TokenRecord.model_validate(
            {**record, "may_publish": record["may_publish"].split(), "speaks_for": record["speaks_for"].splitlines()}
        )
        for record in records
    )
