"""What both flavours of the client can do to administer a node.

Invariant: as of ``journalling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from crew_journal.schemas.api_admin import (
    BrokerAnswer,
    TokenCreatedAnswer,
    TokenRecord,
    TokensAnswer,
)
from crew_journal.schemas.timestamps import format_ts
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
        may_publish: Sequence[str] = (),
        speaks_for: Sequence[str] = (),
        expires_at: datetime | None = None,
    ) -> Steps[TokenCreatedAnswer]:
        """Make a token; the answer's ``token`` is its secret, shown this once.

        With ``nats`` it is a NATS password, too, and ``nats_access`` says where, as whom and on which subject. For AGENT and
        LEAD, ``may_publish`` are further entry types (or ``prefix.*``) and ``speaks_for`` further actors (``keeper``,
        ``keeper:gate``). It is refused from ``expires_at`` (with its time zone) on.
        """
        body = {
            "role": role,
            "workspace_id": workspace_id,
            "all_workspaces": all_workspaces,
            "crew_id": crew_id,
            "agent_id": agent_id,
            "label": label,
            "nats": nats or None,
            "may_publish": list(may_publish) or None,
            "speaks_for": list(speaks_for) or None,
            "expires_at": None if expires_at is None else format_ts(expires_at),
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
    def embedder_status(self) -> Steps[dict[str, Any]]:
        """The embedder and its last outcome."""
        return ask_json(Request("GET", "/v1/admin/embedder"))

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
