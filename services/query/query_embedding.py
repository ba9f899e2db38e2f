"""The vector of a query, in bounded time: recall never waits long for a model, and never fails because of one.

A call that is too late for its recall goes on, so that the same question has its vector the next time, and a model that
was only being loaded is loaded.

Invariant: an answer is a vector of exactly the model that was asked for, or none with the reason. A model that is added,
dropped or activated with other dimensions may be another one of the same name: what was remembered of it is forgotten.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import structlog

from ...schemas.errors import EmbedderError
from ...schemas.events.embeddings import EmbeddingsActivated
from ...schemas.ports import CommittedBatch, Embedder, TokenBits, TokenEmbedder
from .hot.active_models import decides_models
from .hot.vector_matrix import Vectors, query_vector

QUERY_TIMEOUT_S: Final = 2.0
"""Seconds a recall waits for its query's vector (contract §0, row 8)."""
PAUSE_AFTER_TIMEOUT_S: Final = 2.0
"""Seconds in which an embedder that did not answer in time is not asked again: while a server hangs, at least half of
the recalls do not wait for it. A refusal costs no time and pauses nothing."""
LATE_CALLS: Final = 2
"""Calls of a model that go on after their recalls have: the oldest is given up for a third, which a server that hangs and
comes back will answer first."""
REMEMBERED_QUERIES: Final = 1_024
"""Query vectors kept, some 3 KB each."""

EmbedderOf = Callable[[str], Embedder | None]
"""Model id → what runs it here at the moment, None if nothing does."""
Punctuality = Callable[[str, float | None], None]
"""Told of each query put to a model: the seconds it did not answer within, None if it answered in time."""


def nobody_told(_model: str, _late_s: float | None) -> None:
    """Where nobody wants to know of a model's punctuality."""


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector and the model it is of; (d,) float32, L2-normalised. ``tokens``: its tokens in context, if any."""

    model: str
    vector: Vectors
    tokens: TokenBits | None = None


class QueryEmbedder:
    """Embeds queries.

    Args:
        embedder: What runs a model here, None if nothing does.
        timeout_s: Seconds to wait for it.
        punctuality: Told whether a model answers in time.
    """

    def __init__(
        self, embedder: EmbedderOf, timeout_s: float = QUERY_TIMEOUT_S, punctuality: Punctuality = nobody_told
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
        """Give up what is under way."""
        for call in self._calls.values():
            call.cancel()

    def follow(self, batch: CommittedBatch) -> None:
        """Forget the vectors of models that a commit's decisions make others."""
        for event in filter(decides_models, batch.entries):
            model, dim = event.entry.payload.get("model"), event.entry.payload.get("dim")
            if isinstance(model, str):
                self._forget(model, dim if event.entry.entry_type == EmbeddingsActivated.ENTRY_TYPE else None)

    def _forget(self, model: str, dim: object) -> None:
        """Forget a model's vectors, except those of ``dim`` dimensions; a call under way is not remembered or joined."""
        self._forgotten[model] += 1
        for key in [key for key, known in self._known.items() if key[0] == model and len(known.vector) != dim]:
            del self._known[key]

    def remembered(self, text: str, model: str | None) -> QueryVector | None:
        """The query's vector under a model if it was made lately: no call, and no turn of the event loop."""
        if model is None or (known := self._known.get((model, text))) is None:
            return None
        self._known.move_to_end((model, text))
        return known

    async def embed(self, text: str, model: str | None) -> QueryVector | None:
        """The query's vector under a model; None if there is none, nothing here runs it, or it failed."""
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
        if call in late:  # somebody waits for it again
            late.remove(call)
        self._waiting[call] += 1
        try:
            await asyncio.wait((call,), timeout=self._timeout_s)
        finally:  # it came, it did not come in time, or whoever asked went away
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
                done.exception()  # seen here, for its recall may have gone on without it

        call.add_done_callback(ended)
        return call

    def _let_go_on(self, call: asyncio.Task[QueryVector], late: deque[asyncio.Task[QueryVector]]) -> None:
        """Keep a call that nobody waits for any more, and give the oldest such call up if they are too many."""
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
        found = QueryVector(model, query_vector(data), tokens)
        if self._forgotten[model] == forgotten:
            self._known[model, text] = found
        if len(self._known) > REMEMBERED_QUERIES:
            self._known.popitem(last=False)
        return found


_TOKEN_EMBEDDERS: Final[dict[type, bool]] = {}


def _gives_tokens(embedder: Embedder) -> TokenEmbedder | None:
    """The embedder, if it gives tokens in context too; asked once a class, for the check costs 0.1 ms."""
    kind = type(embedder)
    if kind not in _TOKEN_EMBEDDERS:
        _TOKEN_EMBEDDERS[kind] = isinstance(embedder, TokenEmbedder)
    return cast(TokenEmbedder, embedder) if _TOKEN_EMBEDDERS[kind] else None
