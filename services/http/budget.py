"""Limits for requests in progress: bytes of bodies for the node and for each token, number of agents' requests.

A body may have 32 MiB, and only this module limits how many bodies are in memory at once.

Invariants: a body counts from its arrival until its request is answered. Small bodies never count, so that ordinary
appends and recalls continue while large requests are refused. A request's share is always released at its end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from ...schemas.core.errors import BodiesFull, OverBudget, Overloaded, TooManyBodies

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this size in bytes do not count; uvicorn reads that much ahead of the application anyway. 200 usual
entries.
"""


class BodyBudget:
    """Counts the bytes held by each token; used on the event loop.

    Args:
        node_bytes: The limit for all tokens; half of it is the limit for one token.
    """

    def __init__(self, node_bytes: int) -> None:
        self._node_bytes = node_bytes
        self._held = 0
        self._by_token: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    def change(self, token_id: str, by: int) -> None:
        """Hold ``by`` more bytes for a token, or fewer if it is negative.

        Raises:
            TooManyBodies: If the token's limit would be exceeded.
            BodiesFull: If the node's limit would be exceeded.
        """
        if by > 0 and self._by_token[token_id] + by > self._node_bytes // 2:
            raise TooManyBodies(
                f"the request bodies of this token already take {self._node_bytes // 2 >> 20} MiB",
                hint="send fewer large requests at once, or smaller ones (CREW_JOURNAL_BODIES_MB)",
            )
        if by > 0 and self._held + by > self._node_bytes:
            raise BodiesFull(
                f"the request bodies of all tokens already take {self._node_bytes >> 20} MiB",
                hint=f"try again later; bodies up to {SMALL_BYTES >> 10} KiB are always accepted",
            )
        self._held += by
        self._by_token[token_id] += by
        if not self._by_token[token_id]:
            del self._by_token[token_id]


class OpenRequests:
    """Counts the open requests of agents; used on the event loop.

    Args:
        per_token: The limit of a token; 0 for no limit.
        in_all: The limit of all tokens together.
    """

    def __init__(self, per_token: int, in_all: int) -> None:
        self._per_token = per_token
        self._in_all = in_all
        self._open = 0
        self._by_token: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """The number of open requests of agents."""
        return self._open

    def enter(self, token_id: str) -> None:
        """Count one more.

        Raises:
            OverBudget: If the token's limit is reached.
            Overloaded: If the limit of all tokens is reached.
        """
        if self._per_token and self._by_token[token_id] >= self._per_token:
            raise OverBudget(
                f"{self._per_token} requests of this token are open, its maximum; streams count",
                hint="close some, or wait for answers; an operator may raise CREW_JOURNAL_TOKEN_REQUESTS",
                budget="open requests",
                setting="CREW_JOURNAL_TOKEN_REQUESTS",
            )
        if self._open >= self._in_all:
            raise Overloaded(
                f"{self._open} requests of agents are open; the other connections are reserved",
                hint="try again later (CREW_JOURNAL_HTTP_CONNECTIONS)",
            )
        self._open += 1
        self._by_token[token_id] += 1

    def leave(self, token_id: str) -> None:
        """Count one less."""
        self._open -= 1
        self._by_token[token_id] -= 1
        if not self._by_token[token_id]:
            del self._by_token[token_id]


@dataclass(slots=True)
class Share:
    """One request's share of the budgets; ``requests`` is None if the request is not limited."""

    budget: BodyBudget
    token_id: str
    requests: OpenRequests | None = None
    size: int = 0

    def end(self) -> None:
        """Release the share."""
        self.hold(0)
        if self.requests is not None:
            self.requests.leave(self.token_id)
            self.requests = None

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes in all, nothing for a small body; raises as ``BodyBudget.change``."""
        counted = size if size > SMALL_BYTES else 0
        if counted != self.size:
            self.budget.change(self.token_id, counted - self.size)
            self.size = counted
