"""What both flavours of the client can do to administer a node.

Invariant: as of ``journalling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .core import ask_json, said
from .flavours import Call
from .wire import Request, Steps


class AdminCalls:
    """Tokens, dead letters, embedding models, the broker."""

    @Call
    def embedder_status(self) -> Steps[dict[str, Any]]:
        """The embedder and its last outcome."""
        return ask_json(Request("GET", "/v1/admin/embedder"))


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
