"""Bytes of request bodies in memory: a bound for the node and for each token.

Why: a body may have 32 MiB, and nothing but this bounds how many of them are under way at once.

Invariants: a body counts from its arrival until its request is answered; small ones never count, so that ordinary appends
and recalls go on while large ones are refused. What is held is given back with the request, however it ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from ...schemas.errors import BodiesFull, TooManyBodies

SMALL_BYTES: Final = 64 * 1024
"""Bytes of a body that do not count: what uvicorn reads ahead of the application anyway. 200 usual entries."""


class BodyBudget:
    """What is held, by whom; used on the event loop.

    Args:
        node_bytes: The bound for all; half of it is that of a token.
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
            TooManyBodies: If they are beyond the token's bound.
            BodiesFull: If they are beyond the node's.
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


@dataclass(slots=True)
class Share:
    """What one request holds of the budget."""

    budget: BodyBudget
    token_id: str
    size: int = 0

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes in all, nothing for a small body; raises as ``BodyBudget.change``."""
        counted = size if size > SMALL_BYTES else 0
        if counted != self.size:
            self.budget.change(self.token_id, counted - self.size)
            self.size = counted
