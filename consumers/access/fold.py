"""``tokens``: the tokens, stored as SHA-256 of their random bits.

Invariant: the event of a workspace's token must be in that workspace or in ``_system``, the event of a token for all
workspaces in ``_system``; a token id is bound once; only tokens that are bound to an agent are valid on NATS. An event
that violates this is parked.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ValidationError

from ...schemas.access.events import TokenCreated, TokenNatsAllowed, TokenRevoked
from ...schemas.access.tables import TOKENS, TOKENS_PROJECTION, TokenRow
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import SYSTEM_WORKSPACE, is_workspace
from ...schemas.core.table import Tables
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class TokensProjection:
    """Folds ``token.created``, ``token.nats_allowed`` and ``token.revoked``."""

    name: ClassVar = TOKENS_PROJECTION
    version: ClassVar = 4  # speaks_for by lines, because names of persons may have blanks
    tables: ClassVar[Tables] = (TOKENS,)
    folds: ClassVar = (TokenCreated, TokenNatsAllowed, TokenRevoked)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record created and revoked tokens in stream order."""
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, TokenCreated):
                self._created(event, payload, tx)
            elif isinstance(payload, TokenRevoked):
                self._revoked(event, payload, tx)
            elif isinstance(payload, TokenNatsAllowed):
                self._allowed(event, payload, tx)

    def _created(self, event: EntryRecorded, token: TokenCreated, tx: FoldTransaction) -> None:
        if event.workspace_id not in (SYSTEM_WORKSPACE, token.workspace_id):
            raise FoldError(f"the token {token.token_id} at {event.seq} is not for the workspace that made it")
        try:
            bound = token.bearer()
        except ValidationError:
            raise FoldError(
                f"the token {token.token_id} at {event.seq} has a workspace, crew or agent that its role does not allow"
            ) from None
        if tx.get(TOKENS, token_id=token.token_id):
            raise FoldError(f"the token id {token.token_id} at {event.seq} is taken")
        row = TokenRow(
            token.token_id,
            token.sha256,
            token.role.value,
            token.workspace_id,
            token.crew_id,
            token.agent_id,
            token.label,
            event.ts_ms,
            revoked_ms=None,
            nats_bcrypt=None,
            may_publish=" ".join(bound.may_publish),
            speaks_for="\n".join(bound.speaks_for),
            expires_ms=bound.expires_ms,
        )
        tx.add(TOKENS, [row])

    def _allowed(self, event: EntryRecorded, allowed: TokenNatsAllowed, tx: FoldTransaction) -> None:
        known = self._known(event, allowed.token_id, "permission", tx)
        if known.agent_id is None or not is_workspace(known.workspace_id or ""):
            raise FoldError(f"the token {allowed.token_id} at {event.seq} is not bound to one agent")
        tx.replace(TOKENS, [known._replace(nats_bcrypt=allowed.bcrypt)])

    def _revoked(self, event: EntryRecorded, revoked: TokenRevoked, tx: FoldTransaction) -> None:
        known = self._known(event, revoked.token_id, "revocation", tx)
        if known.revoked_ms is None:
            tx.replace(TOKENS, [known._replace(revoked_ms=event.ts_ms)])

    def _known(self, event: EntryRecorded, token_id: str, decision: str, tx: FoldTransaction) -> TokenRow:
        """The token of a decision, if the decision's workspace may decide about it."""
        known = tx.get(TOKENS, token_id=token_id)
        if not known or event.workspace_id not in (SYSTEM_WORKSPACE, known[0].workspace_id):
            raise FoldError(f"the workspace of the {decision} at {event.seq} has no token {token_id}")
        return known[0]


PROJECTION = TokensProjection
