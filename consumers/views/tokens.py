"""``tokens``: who may ask, as SHA-256 of the token's random bits.

Invariant: a token of a workspace comes from that workspace or from ``_system``, one for all workspaces from ``_system``
only; a token id is bound once and for all; on NATS counts only what is bound to one agent. Whatever breaks this is parked,
never half believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import ValidationError

from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.tokens import TokenCreated, TokenNatsAllowed, TokenRevoked
from ...schemas.ids import SYSTEM_WORKSPACE, is_workspace
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_DDL: Final = """CREATE TABLE IF NOT EXISTS tokens (
    token_id VARCHAR NOT NULL, sha256 VARCHAR NOT NULL, role VARCHAR NOT NULL, workspace_id VARCHAR, crew_id VARCHAR,
    agent_id VARCHAR, label VARCHAR NOT NULL, created_ms BIGINT NOT NULL, revoked_ms BIGINT,
    nats_bcrypt VARCHAR, may_publish VARCHAR NOT NULL DEFAULT '', speaks_for VARCHAR NOT NULL DEFAULT '',
    expires_ms BIGINT)"""


class TokensProjection:
    """Folds ``token.created``, ``token.nats_allowed`` and ``token.revoked``."""

    name: ClassVar[str] = "tokens"
    version: ClassVar[int] = 3  # may_publish, speaks_for, expires_ms
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = ("tokens",)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record mintings and revocations in stream order."""
        for event in batch.controls:
            if event.entry.entry_type == TokenCreated.ENTRY_TYPE:
                self._created(event, tx)
            elif event.entry.entry_type == TokenRevoked.ENTRY_TYPE:
                self._revoked(event, tx)
            elif event.entry.entry_type == TokenNatsAllowed.ENTRY_TYPE:
                self._allowed(event, tx)

    def _created(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        token = payload_of(event, TokenCreated)
        if event.workspace_id not in (SYSTEM_WORKSPACE, token.workspace_id):
            raise FoldError(f"the token {token.token_id} at {event.seq} is not for the workspace that made it")
        try:
            bound = token.bearer()
        except ValidationError:
            raise FoldError(f"the token {token.token_id} at {event.seq} is bound to nobody its role allows") from None
        known = tx.rows("SELECT sha256 FROM tokens WHERE token_id = ?", [token.token_id])
        if known:
            raise FoldError(f"the token id {token.token_id} at {event.seq} is taken")
        tx.execute(
            "INSERT INTO tokens (token_id, sha256, role, workspace_id, crew_id, agent_id, label, created_ms, may_publish, "
            "speaks_for, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                token.token_id,
                token.sha256,
                token.role.value,
                token.workspace_id,
                token.crew_id,
                token.agent_id,
                token.label,
                event.ts_ms,
                " ".join(bound.may_publish),
                " ".join(bound.speaks_for),
                bound.expires_ms,
            ],
        )

    def _allowed(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        allowed = payload_of(event, TokenNatsAllowed)
        known = tx.rows("SELECT workspace_id, agent_id FROM tokens WHERE token_id = ?", [allowed.token_id])
        if not known or event.workspace_id not in (SYSTEM_WORKSPACE, known[0][0]):
            raise FoldError(f"the workspace of the permission at {event.seq} has no token {allowed.token_id}")
        workspace_id, agent_id = known[0]
        if agent_id is None or not is_workspace(workspace_id or ""):
            raise FoldError(f"the token {allowed.token_id} at {event.seq} is not bound to one agent")
        tx.execute("UPDATE tokens SET nats_bcrypt = ? WHERE token_id = ?", [allowed.bcrypt, allowed.token_id])

    def _revoked(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        token_id = payload_of(event, TokenRevoked).token_id
        known = tx.rows("SELECT workspace_id FROM tokens WHERE token_id = ?", [token_id])
        if not known or event.workspace_id not in (SYSTEM_WORKSPACE, known[0][0]):
            raise FoldError(f"the workspace of the revocation at {event.seq} has no token {token_id}")
        tx.execute("UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?) WHERE token_id = ?", [event.ts_ms, token_id])


PROJECTION = TokensProjection
