"""One embed reactor for every model that is wanted: started when a model is added, ended when it is dropped.

Why: a second model is filled beside the first, so that switching to it takes no time. Each (model, filling) has a
durable of its own, so a filling goes on after a restart where it was.

Invariant: after each decision, and at start, the reactors are those of ``Embedding.wanted``; a durable is deleted only when
its model was dropped (since), and never while another process draws from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from ...consumers.reactor import ReactorContext
from ...consumers.reactors.embed import EmbedReactor, create
from ...consumers.reactors.embed_limits import durable_name
from ...schemas.ports import CommittedBatch, ViewReader
from ...schemas.subjects import JOURNAL_STREAM
from ...schemas.views import EMBEDDING_MODELS, ModelState
from ..endings import end_task
from ..parts import Part
from ..query.hot.active_models import decides_models
from .embedding import Embedding

API_TIMEOUT_S: Final = 5.0
"""Seconds for a request to the JetStream API; it takes about a millisecond."""
RETRY_S: Final = 5.0
"""Seconds until models are looked at again after the broker or the views failed."""
_KNOWN: Final = f"SELECT model, state, dropped_seq FROM {EMBEDDING_MODELS}"

_log = structlog.get_logger(__name__)


class Filling(Part):
    """The embed reactors of a node.

    Args:
        embedding: The wanted models and their embedders.
        context: The context of reactors.
        views: Commits of decisions.
        say: Called with one line for each reactor that starts or stops.
    """

    def __init__(
        self, embedding: Embedding, context: ReactorContext, views: ViewReader, say: Callable[[str], None]
    ) -> None:
        self._embedding = embedding
        self._context = context
        self._views = views
        self._say = say
        self._reactors: dict[str, tuple[int, EmbedReactor]] = {}
        self._due = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def reactors(self) -> Mapping[str, EmbedReactor]:
        """Model → its reactor."""
        return {model: reactor for model, (_, reactor) in self._reactors.items()}

    def unsettled(self, durable: str) -> frozenset[int] | None:
        """Sequences that the reactor on a durable took and did not ack yet; None if there is no such reactor here."""
        for _, reactor in self._reactors.values():
            if reactor.durable == durable:
                return reactor.unsettled
        return None

    async def start(self) -> None:
        """Start a reactor for every wanted model, and follow decisions from here on."""
        self._unsubscribe = self._views.subscribe(self._on_commit)
        self._embedding.reactors = lambda: self.reactors
        await self._reconcile()
        self._following = asyncio.create_task(self._follow(), name="embedding-models")

    async def stop(self) -> None:
        """Stop all of them; the durables stay."""
        self._unsubscribe()
        await end_task(self._following)
        await asyncio.gather(*(reactor.stop() for reactor in self.reactors.values()))

    def _on_commit(self, batch: CommittedBatch) -> None:
        if any(map(decides_models, batch.entries)):
            self._due.set()

    async def _follow(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._reconcile()
            except Exception:  # the models filled so far go on being filled
                _log.exception("embedding_models_not_followed")
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _reconcile(self) -> None:
        wanted = await asyncio.to_thread(self._embedding.wanted)
        known = {str(model): int(dropped) for model, _, dropped in await asyncio.to_thread(self._views.rows, _KNOWN)}
        for model, (generation, reactor) in list(self._reactors.items()):
            if wanted.get(model) != generation:
                await reactor.stop()
                del self._reactors[model]
                if known.get(model, 0) != generation:
                    await self._delete(reactor.durable)
                if model not in wanted:
                    await self._embedding.release(model)
                    self._say(f"embedder: {model} is not filled any more")
        for model, generation in wanted.items():
            if model not in self._reactors:
                await self._begin(model, generation)
        await self._clean()

    async def _begin(self, model: str, generation: int) -> None:
        embedder = self._embedding.running(model)
        dim = await asyncio.to_thread(self._embedding.known_dim, model)
        context = replace(self._context, embedder=embedder, embedding_dim=dim, embedding_generation=generation)
        reactor = create(context)
        if isinstance(reactor, EmbedReactor):
            await reactor.start()
            self._reactors[model] = generation, reactor
            self._say(f"reactor: embed, {model}")

    async def _clean(self) -> None:
        """Delete durables of models that were dropped, and of fillings before a drop, unless a consumer draws from them."""
        known = await asyncio.to_thread(self._views.rows, _KNOWN)
        gone = [(str(model), state, int(dropped)) for model, state, dropped in known if dropped]
        if not gone:
            return
        js = self._context.client.jetstream(timeout=API_TIMEOUT_S)
        try:
            durables = await js.consumers_info(JOURNAL_STREAM)
        except (NatsError, TimeoutError) as error:  # an unused durable costs almost nothing; the next start looks again
            _log.warning("embed_durables_not_listed", error=type(error).__name__)
            return
        for model, state, dropped in gone:
            prefix = durable_name(EmbedReactor.version, model)
            keep = None if state == ModelState.DROPPED else durable_name(EmbedReactor.version, model, dropped)
            for durable in durables:
                ours = durable.name == prefix or durable.name.startswith(f"{prefix}-")
                if ours and durable.name != keep and not durable.num_waiting:
                    await self._delete(durable.name)

    async def _delete(self, name: str) -> None:
        js = self._context.client.jetstream(timeout=API_TIMEOUT_S)
        with contextlib.suppress(NotFoundError, NatsError, TimeoutError):
            await js.delete_consumer(JOURNAL_STREAM, name)
