"""Computes the vector of a query in bounded time; a recall never fails because of a model.

A call that exceeds its time continues in the background, so that the vector is cached for the next recall. Invariant:
the vector is of exactly the requested model. Cached vectors of a model are dropped when it is added, dropped or
activated with other dimensions, since it may be another model of the same name.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import structlog

from ...schemas.core.errors import EmbedderError
from ...schemas.core.ports import CommittedBatch, Embedder, TokenBits, TokenEmbedder
from ...schemas.models.events import EmbeddingsActivated
from .active_models import decides_models
from .vectors import Vectors, query_vector

QUERY_TIMEOUT_S: Final = 2.0
"""Seconds that a recall waits for the vector of its query (contract §0, row 8)."""
PAUSE_AFTER_TIMEOUT_S: Final = 2.0
"""Seconds without calls after an embedder did not answer in time, so that a hanging server does not delay every recall.
An error does not cause this pause.
"""
LATE_CALLS: Final = 2
"""Background calls of a model at the same time; a further one cancels the oldest."""
REMEMBERED_QUERIES: Final = 1_024
"""Cached query vectors, about 3 KB each."""

EmbedderOf = Callable[[str], Embedder | None]
"""Returns the embedder that runs a model, or None."""
Punctuality = Callable[[str, float | None], None]
"""Called after each call of a model: with the time limit if it was exceeded, else None."""


def ignore_outcome(_model: str, _late_s: float | None) -> None:
    """Ignores the outcome of a call."""


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector, (d,) float32, L2-normalised, its model, and its bits in context, if any."""

    model: str
    vector: Vectors
    tokens: TokenBits | None = None


class QueryEmbedder:
    """Embeds queries."""

    def __init__(
        self, embedder: EmbedderOf, timeout_s: float = QUERY_TIMEOUT_S, punctuality: Punctuality = ignore_outcome
    ) -> None:
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._punctuality = punctuality
        self._known: OrderedDict[tuple[str, str], QueryVector] = OrderedDict()
        self._calls: dict[tuple[str, str, int], asyncio.Task[QueryVector]] = {}
        self._waiting: Counter[asyncio.Task[QueryVector]] = Counter()
        self._late: dict[str, deque[asyncio.Task[QueryVector]]] = {}
        self._paused_until: dict[str, float] = {}
        self._forgotten: Counter[str] = Counter()

    def close(self) -> None:
        """Cancel running calls."""
        for call in self._calls.values():
            call.cancel()

    def follow(self, batch: CommittedBatch) -> None:
        """Drop cached vectors of models that a commit adds, drops or activates."""
        for event in filter(decides_models, batch.entries):
            model, dim = event.entry.payload.get("model"), event.entry.payload.get("dim")
            if isinstance(model, str):
                self._forget(model, dim if event.entry.entry_type == EmbeddingsActivated.ENTRY_TYPE else None)

    def _forget(self, model: str, dim: object) -> None:
        """Drop a model's cached vectors, except those of ``dim`` dimensions, and disregard its running calls."""
        self._forgotten[model] += 1
        for key in [key for key, known in self._known.items() if key[0] == model and len(known.vector) != dim]:
            del self._known[key]

    def runs(self, model: str | None) -> bool:
        """Whether there is an embedder for a model."""
        return model is not None and self._embedder(model) is not None

    def remembered(self, text: str, model: str | None) -> QueryVector | None:
        """The cached vector of a query, or None."""
        if model is None or (known := self._known.get((model, text))) is None:
            return None
        self._known.move_to_end((model, text))
        return known

    async def embed(self, text: str, model: str | None) -> QueryVector | None:
        """The vector of a query; None without a model, without an embedder for it, or after a failure."""
        if (known := self.remembered(text, model)) is not None:
            return known
        embedder = self._embedder(model) if model is not None else None
        if model is None or embedder is None:
            return None
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until.get(model, 0.0):
            return None
        key = (model, text, self._forgotten[model])
        call = self._calls.get(key) or self._start(embedder, key)
        late = self._late.setdefault(model, deque())
        if call in late:  # another recall waits for it
            late.remove(call)
        self._waiting[call] += 1
        try:
            await asyncio.wait((call,), timeout=self._timeout_s)
        finally:  # it finished, timed out, or the caller was cancelled
            self._waiting[call] -= 1
            if not self._waiting[call]:
                del self._waiting[call]
                self._let_go_on(call, late)
        if not call.done():
            self._paused_until[model] = loop.time() + PAUSE_AFTER_TIMEOUT_S
            self._punctuality(model, self._timeout_s)
            _log.warning("query_not_embedded", model=model, error=TimeoutError.__name__)
            return None
        if call.cancelled():
            return None
        if (error := call.exception()) is not None:
            if not isinstance(error, EmbedderError):
                raise error
            _log.warning("query_not_embedded", model=model, error=type(error).__name__)
            return None
        self._punctuality(model, None)
        return call.result()

    def _start(self, embedder: Embedder, key: tuple[str, str, int]) -> asyncio.Task[QueryVector]:
        call = self._calls[key] = asyncio.create_task(self._ask(embedder, *key), name="query-embedding")

        def ended(done: asyncio.Task[QueryVector]) -> None:
            if self._calls.get(key) is done:
                del self._calls[key]
            if not done.cancelled():
                done.exception()  # retrieve the exception here, since the recall may not have waited

        call.add_done_callback(ended)
        return call

    def _let_go_on(self, call: asyncio.Task[QueryVector], late: deque[asyncio.Task[QueryVector]]) -> None:
        """Continue a call in the background; cancel the oldest if there are too many."""
        if call.done():
            return
        late.append(call)
        while late and late[0].done():
            late.popleft()
        if len(late) > LATE_CALLS:
            late.popleft().cancel()

    async def _ask(self, embedder: Embedder, model: str, text: str, forgotten: int) -> QueryVector:
        tokens = None
        if (with_tokens := _gives_tokens(embedder)) is not None:
            data, tokens = await with_tokens.embed_query_tokens(text)
        else:
            data = await embedder.embed_query(text)
        query_vector_ = QueryVector(model, query_vector(data), tokens)
        if self._forgotten[model] == forgotten:
            self._known[model, text] = query_vector_
        if len(self._known) > REMEMBERED_QUERIES:
            self._known.popitem(last=False)
        return query_vector_


_TOKEN_EMBEDDERS: Final[dict[type, bool]] = {}


def _gives_tokens(embedder: Embedder) -> TokenEmbedder | None:
    """The embedder if it also computes token bits; cached by class, since the check costs 0.1 ms."""
    kind = type(embedder)
    if kind not in _TOKEN_EMBEDDERS:
        _TOKEN_EMBEDDERS[kind] = isinstance(embedder, TokenEmbedder)
    return cast(TokenEmbedder, embedder) if _TOKEN_EMBEDDERS[kind] else None
