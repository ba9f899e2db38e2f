"""What both flavours of the client can do to administer a node.

Invariant: no logic here: the steps are in ``core``, the flavour carries them out.
"""

from __future__ import annotations

from typing import Any

from crew_journal.schemas.api import (
    BrokerAnswer,
    DeadLetter,
    DeadLetterAnswer,
    TokenCreatedAnswer,
    TokenRecord,
)
from crew_journal.services.client import core
from crew_journal.services.client.flavours import Call
from crew_journal.services.client.wire import Steps


class AdminCalls:
    """Tokens, dead letters, embedding models, the broker."""

    @Call
    def create_token(
        self,
        *,
        role: str,
        workspace_id: str | None = None,
        all_workspaces: bool = False,
        crew_id: str | None = None,
        agent_id: str | None = None,
        label: str = "",
    ) -> Steps[TokenCreatedAnswer]:
        """Make a token; the answer's ``token`` is its secret, shown this once."""
        given = {
            "role": role,
            "workspace_id": workspace_id,
            "all_workspaces": all_workspaces,
            "crew_id": crew_id,
            "agent_id": agent_id,
            "label": label,
        }
        return core.create_token(given)

    @Call
    def tokens(self, *, workspace_id: str | None = None) -> Steps[tuple[TokenRecord, ...]]:
        """Every token, revoked ones too."""
        return core.tokens({"workspace_id": workspace_id})

    @Call
    def revoke_token(self, token_id: str) -> Steps[None]:
        """End a token."""
        return core.revoke_token(token_id)

    @Call
    def dead_letters(
        self, *, state: str | None = None, workspace_id: str | None = None
    ) -> Steps[tuple[DeadLetter, ...]]:
        """Events that could not be folded."""
        return core.dead_letters({"state": state, "workspace_id": workspace_id})

    @Call
    def retry_dead_letter(self, seq: int, *, workspace_id: str | None = None) -> Steps[DeadLetterAnswer]:
        """Publish a parked event again as a new one."""
        return core.decide_dead_letter(seq, "retry", {}, {"workspace_id": workspace_id})

    @Call
    def discard_dead_letter(
        self, seq: int, reason: str = "", *, workspace_id: str | None = None
    ) -> Steps[DeadLetterAnswer]:
        """Decide that a parked event needs nothing more."""
        body = {"reason": reason}
        return core.decide_dead_letter(seq, "discard", body, {"workspace_id": workspace_id})

    @Call
    def embedder_status(self) -> Steps[dict[str, Any]]:
        """The embedder and its last outcome."""
        return core.embedder_status()

    @Call
    def activate_model(
        self, model: str, *, workspace_id: str | None = None, reason: str = "", force: bool = False
    ) -> Steps[dict[str, Any]]:
        """Make a model the active one, of a workspace or (absent, for an OWNER of all) by default; it must be filled."""
        given = {"model": model, "workspace_id": workspace_id, "reason": reason, "force": force or None}
        return core.activate_model(given)

    @Call
    def embedding_models(self, *, workspace_id: str | None = None) -> Steps[dict[str, Any]]:
        """The embedding models, and how far each is filled."""
        return core.embedding_models({"workspace_id": workspace_id})

    @Call
    def add_model(self, model: str) -> Steps[dict[str, Any]]:
        """Fill a further model in the background."""
        return core.add_model(model)

    @Call
    def drop_model(self, model: str, reason: str = "") -> Steps[dict[str, Any]]:
        """Forget a model's vectors; the active one cannot be dropped."""
        return core.drop_model(model, reason)

    @Call
    def broker(self) -> Steps[BrokerAnswer]:
        """How a reactor in another process reaches the broker."""
        return core.broker()
