"""What both flavours of the client can do to administer a node.

Invariant: as of ``journalling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from crew_journal.schemas.api_admin import (
    BrokerAnswer,
    DeadLetter,
    DeadLetterAnswer,
    DeadLettersAnswer,
    TokenCreatedAnswer,
    TokenRecord,
    TokensAnswer,
)
from crew_journal.services.client.core import ask, ask_json, exchange, params_of, said
from crew_journal.services.client.flavours import Call
from crew_journal.services.client.wire import Request, Steps


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
        nats: bool = False,
    ) -> Steps[TokenCreatedAnswer]:
        """Make a token; the answer's ``token`` is its secret, shown this once.

        With ``nats`` it is a NATS password, too, and ``nats_access`` says where, as whom and on which subject.
        """
        body = {
            "role": role,
            "workspace_id": workspace_id,
            "all_workspaces": all_workspaces,
            "crew_id": crew_id,
            "agent_id": agent_id,
            "label": label,
            "nats": nats or None,
        }
        request = Request("POST", "/v1/admin/tokens", json=said(body), repeatable=False)  # each try would make one
        return ask(request, TokenCreatedAnswer)

    @Call
    def tokens(self, *, workspace_id: str | None = None) -> Steps[tuple[TokenRecord, ...]]:
        """Every token, revoked ones too."""
        params = params_of({"workspace_id": workspace_id})
        answer = yield from ask(Request("GET", "/v1/admin/tokens", params), TokensAnswer)
        return answer.tokens

    @Call
    def revoke_token(self, token_id: str) -> Steps[None]:
        """End a token."""
        yield from exchange(Request("DELETE", f"/v1/admin/tokens/{quote(token_id, safe='')}", repeatable=False))

    @Call
    def dead_letters(
        self, *, state: str | None = None, workspace_id: str | None = None
    ) -> Steps[tuple[DeadLetter, ...]]:
        """Events that could not be folded."""
        params = params_of({"state": state, "workspace_id": workspace_id})
        answer = yield from ask(Request("GET", "/v1/admin/dlq", params), DeadLettersAnswer)
        return answer.dead_letters

    @Call
    def retry_dead_letter(
        self, seq: int, *, workspace_id: str | None = None, force: bool = False
    ) -> Steps[DeadLetterAnswer]:
        """Publish a parked event again as a new one.

        Raises:
            RefusedByOneView: If all views but one have the event, unless forced.
        """
        return _decide(seq, "retry", said({"force": force or None}), workspace_id)

    @Call
    def discard_dead_letter(
        self, seq: int, reason: str = "", *, workspace_id: str | None = None
    ) -> Steps[DeadLetterAnswer]:
        """Decide that a parked event needs nothing more."""
        return _decide(seq, "discard", {"reason": reason}, workspace_id)

    @Call
    def embedder_status(self) -> Steps[dict[str, Any]]:
        """The embedder and its last outcome."""
        return ask_json(Request("GET", "/v1/admin/embedder"))

    @Call
    def activate_model(
        self, model: str, *, workspace_id: str | None = None, reason: str = "", force: bool = False
    ) -> Steps[dict[str, Any]]:
        """Make a model the active one, of a workspace or (absent, for an OWNER of all) by default; it must be filled."""
        body = said({"model": model, "workspace_id": workspace_id, "reason": reason, "force": force or None})
        return ask_json(Request("POST", "/v1/admin/embeddings/activate", json=body, repeatable=False))

    @Call
    def embedding_models(self, *, workspace_id: str | None = None) -> Steps[dict[str, Any]]:
        """The embedding models, and how far each is filled."""
        return ask_json(Request("GET", "/v1/admin/embeddings", params_of({"workspace_id": workspace_id})))

    @Call
    def add_model(self, model: str) -> Steps[dict[str, Any]]:
        """Fill a further model in the background."""
        body = {"model": model}  # not repeated: the service has tried the model for a while before it refuses
        return ask_json(Request("POST", "/v1/admin/embeddings", json=body, repeatable=False))

    @Call
    def drop_model(self, model: str, reason: str = "") -> Steps[dict[str, Any]]:
        """Forget a model's vectors; the active one cannot be dropped."""
        body = {"model": model, "reason": reason}
        return ask_json(Request("POST", "/v1/admin/embeddings/drop", json=body, repeatable=False))

    @Call
    def broker(self) -> Steps[BrokerAnswer]:
        """How a reactor in another process reaches the broker."""
        return ask(Request("GET", "/v1/admin/broker"), BrokerAnswer)


def compare_request(one: str, other: str, given: Mapping[str, object]) -> Request:
    """Streams a comparison of two models."""
    body = {"one": one, "other": other, **said(given)}
    return Request("POST", "/v1/admin/embeddings/compare", json=body, repeatable=False)


def rebuild_request(projections: Sequence[str] | None, accept_loss: bool = False) -> Request:
    """Streams the rebuild."""
    body = said({"projections": list(projections) if projections else None, "accept_loss": accept_loss or None})
    return Request("POST", "/v1/admin/rebuild", json=body, repeatable=False)


def salvage_request() -> Request:
    """Streams what the views still know of lost entries."""
    return Request("POST", "/v1/admin/salvage", repeatable=False)


def verify_request() -> Request:
    """Streams the verification."""
    return Request("POST", "/v1/admin/verify", repeatable=False)


def _decide(seq: int, decision: str, body: Mapping[str, object], workspace_id: str | None) -> Steps[DeadLetterAnswer]:
    params = params_of({"workspace_id": workspace_id})
    request = Request("POST", f"/v1/admin/dlq/{seq}/{decision}", params, json=body, repeatable=False)
    return ask(request, DeadLetterAnswer)
