"""``tokens``: the tokens, stored as SHA-256 of their random bits, and the accounts of people.

Invariant: the event of a workspace's token or account must be in that workspace or in ``_system``, the event of a token
or account for all workspaces in ``_system``; a token id is bound once; only tokens that are bound to an agent are valid on
NATS. An event that violates this is parked.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ValidationError

from ...schemas.access.events import (
    AccountInvited,
    AccountPasswordSet,
    AccountRemoved,
    TokenCreated,
    TokenNatsAllowed,
    TokenRevoked,
)
from ...schemas.access.tables import ACCOUNTS, TOKENS, TOKENS_PROJECTION, AccountRow, TokenRow
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import SYSTEM_WORKSPACE, is_workspace
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import to_ms
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class TokensProjection:
    """Folds ``token.*`` and ``account.*``."""

    name: ClassVar = TOKENS_PROJECTION
    version: ClassVar = 5  # accounts of people
    tables: ClassVar[Tables] = (TOKENS, ACCOUNTS)
    folds: ClassVar = (
        TokenCreated,
        TokenNatsAllowed,
        TokenRevoked,
        AccountInvited,
        AccountPasswordSet,
        AccountRemoved,
    )

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record tokens and accounts in stream order."""
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, TokenCreated):
                self._created(event, payload, tx)
            elif isinstance(payload, TokenRevoked):
                self._revoked(event, payload, tx)
            elif isinstance(payload, TokenNatsAllowed):
                self._allowed(event, payload, tx)
            elif isinstance(payload, AccountInvited):
                self._invited(event, payload, tx)
            elif isinstance(payload, AccountPasswordSet):
                account = self._account(event, payload.account_id, tx)
                tx.replace(ACCOUNTS, [account._replace(link_sha256=None, password_seq=event.seq)])
            elif isinstance(payload, AccountRemoved):
                account = self._account(event, payload.account_id, tx)
                tx.replace(ACCOUNTS, [account._replace(link_sha256=None, removed_ms=event.ts_ms)])

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

    def _invited(self, event: EntryRecorded, invited: AccountInvited, tx: FoldTransaction) -> None:
        if event.workspace_id not in (SYSTEM_WORKSPACE, invited.workspace_id):
            raise FoldError(
                f"the account {invited.account_id} at {event.seq} is not for the workspace that invited the person"
            )
        try:
            invited.bearer()
        except ValidationError:
            raise FoldError(
                f"the account {invited.account_id} at {event.seq} has a workspace, crew or agent that its role does"
                " not allow"
            ) from None
        is_known = bool(tx.get(ACCOUNTS, account_id=invited.account_id))
        row = AccountRow(
            invited.account_id,
            invited.person,
            invited.role.value,
            invited.workspace_id,
            invited.crew_id,
            invited.agent_id,
            invited.link_sha256,
            to_ms(invited.link_expires_at),
            event.ts_ms,
            password_seq=self._account(event, invited.account_id, tx).password_seq if is_known else None,
            removed_ms=None,
        )
        tx.replace(ACCOUNTS, [row])

    def _account(self, event: EntryRecorded, account_id: str, tx: FoldTransaction) -> AccountRow:
        """The account of a decision, if it was not removed and the decision's workspace may decide about it."""
        known = tx.get(ACCOUNTS, account_id=account_id)
        deciding = (SYSTEM_WORKSPACE, known[0].workspace_id) if known and known[0].removed_ms is None else ()
        if event.workspace_id not in deciding:
            raise FoldError(f"the workspace of the decision at {event.seq} has no account {account_id}")
        return known[0]


PROJECTION = TokensProjection
