"""The vector of a query, in bounded time: recall never waits long for a model, and never fails because of one.

Invariant: an answer is a vector of exactly the model that was asked for, or none with the reason.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from crew_journal.schemas.errors import EmbedderError
from crew_journal.schemas.ports import Embedder
from crew_journal.services.query.vector_matrix import Vectors, query_vector

QUERY_TIMEOUT_S: Final = 2.0
"""Seconds a recall waits for its query's vector (contract §0, row 8)."""
PAUSE_AFTER_TIMEOUT_S: Final = 2.0
"""Seconds in which an embedder that did not answer in time is not asked again: while a server hangs, at least half of
the recalls do not wait for it. A refusal costs no time and pauses nothing."""
REMEMBERED_QUERIES: Final = 1_024
"""Query vectors kept, some 3 KB each."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector and the model it is of; (d,) float32, L2-normalised."""

    model: str
    vector: Vectors


class QueryEmbedder:
    """Embeds queries.

    Args:
        embedder: The embedder at the moment, None if there is none.
        timeout_s: Seconds to wait for it.
    """

    def __init__(self, embedder: Callable[[], Embedder | None], timeout_s: float = QUERY_TIMEOUT_S) -> None:
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._known: OrderedDict[tuple[str, str], QueryVector] = OrderedDict()
        self._paused_until = 0.0

    def remembered(self, text: str) -> QueryVector | None:
        """The query's vector under the present model if it was made lately: no call, and no turn of the event loop."""
        embedder = self._embedder()
        key = (embedder.model_id, text) if embedder is not None else None
        if key is None or key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key]

    async def embed(self, text: str) -> QueryVector | None:
        """The query's vector under the present model; None if there is no model or it failed."""
        if (known := self.remembered(text)) is not None:
            return known
        embedder = self._embedder()
        if embedder is None:
            return None
        key = (embedder.model_id, text)
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await embedder.embed_query(text)
        except (EmbedderError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._paused_until = loop.time() + PAUSE_AFTER_TIMEOUT_S
            _log.warning("query_not_embedded", model=key[0], error=type(error).__name__)
            return None
        found = self._known[key] = QueryVector(key[0], query_vector(data))
        if len(self._known) > REMEMBERED_QUERIES:
            self._known.popitem(last=False)
        return found
