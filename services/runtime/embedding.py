"""The node's embedding models: one is chosen at the start, others may be added; all are observed, probed and closed here.

Invariant: recall and the reactors share one observed embedder for each model, so health reports its last outcome. The
wanted models are stored in the views, so that they are the same after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from ...consumers.adapters.choose import (
    SLOW,
    SPARSE_ONLY,
    EmbedderChoice,
    ObservedEmbedder,
    choose_embedder,
    kind_of,
    make_embedder,
    ollama_host_of,
    runnable_models,
)
from ...consumers.adapters.minilm_weights import MODEL_ID, ensure_static_table, find_static_table
from ...consumers.adapters.served import Endpoint
from ...consumers.feed.live import LiveFeed
from ...consumers.models.embed_reactor import EmbedReactor, create, durable_name
from ...consumers.reactor import Reactor, ReactorContext
from ...schemas.core.errors import (
    CrewJournalError,
    EmbedderBadAnswer,
    EmbedderModelMissing,
    EmbedderUnavailable,
    ViewsDamaged,
)
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import CommittedBatch, Embedder, ViewReader
from ...schemas.core.subjects import JOURNAL_STREAM
from ...schemas.core.timestamps import format_ts
from ...schemas.health.rules import EmbedderFailure
from ...schemas.models.events import ModelKind
from ...schemas.models.tables import EMBEDDING_MODELS, EMBEDDINGS, ModelState, read_active_models
from ...schemas.settings import Settings
from ..index.active_models import ActiveModels, decides_models
from ..index.vectors import Words
from ..journal.broker.broker import ManagedBroker, version_text
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import stream_figures
from ..journal.intake.append import Journal
from ..models.use_cases import activate_embeddings
from ..operate.status import as_json
from ..parts import Part, Parts, end_task
from .views import NodeViews

# Figures and trouble of the parts that are not started by ``Parts``: broker, connection, views, feed.


def mapping(value: object) -> dict[str, Any]:
    """Any figures as JSON."""
    figures: dict[str, Any] = as_json(value)
    return figures


def broker_figures(broker: ManagedBroker | None, url: str, client: BrokerConnection) -> Mapping[str, Any]:
    """The managed broker, or the operator's at ``url``, to which ``client`` is connected."""
    if broker is None:
        server = client.connected_server_version
        version = version_text((server.major, server.minor, server.patch))
        return {"managed": False, "url": url, "version": version, "durability": "unknown"}
    return {"managed": True, **mapping(broker.status())}


async def statuses(reactors: Mapping[str, Reactor]) -> dict[str, Mapping[str, Any]]:
    """Name → status of each reactor; queried concurrently, because each waits if the broker is unavailable."""
    parts = dict(reactors)
    return dict(
        zip(parts, map(mapping, await asyncio.gather(*(part.status() for part in parts.values()))), strict=True)
    )


async def stream_section(client: BrokerConnection, views: ViewReader) -> dict[str, Any]:
    """Last sequence, messages and bytes of JOURNAL; while the broker is unavailable, the views' sequence."""
    try:
        return dict(await stream_figures(client))
    except Exception as error:
        return {"head": views.view_seq(), "unavailable": str(error) or type(error).__name__}


def connection_trouble(client: BrokerConnection) -> str | None:
    """A sentence if the broker is unavailable, else None."""
    state = client.state
    return None if state.connected else f"the broker is not connected: {state.last_error or 'reconnecting'}"


def show_views(parts: Parts, views: NodeViews, feed: LiveFeed) -> None:
    """Show the file of the views, the folding into them, and the feed."""
    store, host = views.store, views.host

    def unusable() -> str | None:
        if store.damage is not None:
            return f"{store.damage} ({ViewsDamaged.HINT})"
        trouble = store.trouble
        return trouble and f"the views cannot be used and are being reopened automatically: {trouble}"

    def stopped() -> str | None:
        reason = host.status().stopped
        return reason and f"folding has stopped: {reason}"

    parts.show("views", trouble=unusable)
    parts.show("folding", host.status, stopped)
    parts.show("feed", feed.status)


_RECORDED_DIM: Final = f"SELECT dim FROM {EMBEDDINGS} WHERE model = ? AND dim > 0 LIMIT 1"
"""Query for a model's dimensions in the journal, because a changed model with the same name must not mix its vectors
with the old ones.
"""
_STATES: Final = f"SELECT model, state, dropped_seq FROM {EMBEDDING_MODELS}"

_TROUBLES: Final = {
    EmbedderUnavailable.__name__: "does not answer",
    EmbedderModelMissing.__name__: "is not on its server",
    EmbedderBadAnswer.__name__: "answers with something that is not one of its vectors",
    SLOW: "answers queries too late",
}
"""Descriptions of the last outcome."""


class Embedding:
    """The models of a node.

    Args:
        settings: The node's settings.
        views: The node's views.
        journal: Records which model is active.
        clock: The time now, UTC.
    """

    def __init__(
        self, settings: Settings, views: ViewReader, journal: Journal, *, clock: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._views = views
        self._journal = journal
        self._clock = clock
        self._running: dict[str, ObservedEmbedder] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._probes = False
        self.reactors: Callable[[], Mapping[str, EmbedReactor]] = dict
        self.active = ActiveModels(views)
        self.choice = EmbedderChoice(None, "none", "not chosen yet")

    async def start(self, stack: AsyncExitStack) -> None:
        """Choose and record the activation; closed by ``stack``."""
        host = await ollama_host_of(self._settings.ollama_host)
        settings = self._settings = self._settings.model_copy(update={"ollama_host": host})
        stack.push_async_callback(self._close)
        pinned = (await asyncio.to_thread(read_active_models, self._views)).get(SYSTEM_WORKSPACE)
        states = {model: state for model, state, _ in await asyncio.to_thread(self._views.rows, _STATES)}
        self.choice = await choose_embedder(
            settings.embedder,
            ollama_host=settings.ollama_host,
            ollama_model=settings.ollama_model,
            cache_dir=settings.models_dir,
            endpoint=Endpoint(settings.embed_base_url, settings.embed_api_key),
            endpoint_model=settings.embed_model,
            pinned_model=pinned,
            switched=states.get(pinned) == ModelState.ADDED,
        )
        chosen = self.choice.embedder
        if chosen is None:
            return
        self._observe(chosen)
        await activate_embeddings(
            self._journal, self._views, model=chosen.model_id, embedder=self.choice.kind, reason=self.choice.reason
        )

    def start_probing(self) -> None:
        """Probe models in the background from now on; earlier, loading MiniLM would slow down the start."""
        self._probes = True
        for observed in self._running.values():
            self._probe(observed)

    async def _close(self) -> None:
        self.active.close()
        for model in list(self._running):
            await self.release(model)

    # the models

    @property
    def chosen(self) -> ObservedEmbedder | None:
        """The model chosen at the start."""
        return self._running.get(self.choice.embedder.model_id) if self.choice.embedder is not None else None

    @property
    def aliases(self) -> Mapping[str, str]:
        """Short names of models."""
        return {"minilm": MODEL_ID}

    @property
    def runnable(self) -> Collection[str]:
        """Models that this node's configuration can run."""
        return runnable_models(self._settings)

    def kind_of(self, model: str) -> ModelKind:
        """The adapter that runs a model."""
        return kind_of(model)

    async def filling(self) -> Mapping[str, Mapping[str, Any]]:
        """Model → status of the reactor that fills it."""
        return await statuses(self.reactors())

    def running(self, model: str) -> Embedder | None:
        """The embedder of a model, created if necessary; None if the node does not embed."""
        if (known := self._running.get(model)) is not None:
            return known
        if self._settings.embedder == "none":
            return None
        settings = self._settings
        try:
            embedder = make_embedder(
                model,
                ollama_host=settings.ollama_host,
                cache_dir=settings.models_dir,
                endpoint=Endpoint(settings.embed_base_url, settings.embed_api_key),
            )
        except CrewJournalError:  # the address of its server is not valid; doctor reports it
            return None
        return self._observe(embedder)

    async def release(self, model: str) -> None:
        """Close a model that is no longer wanted."""
        if (probing := self._probing.pop(model, None)) is not None:
            await end_task(probing)
        if (observed := self._running.pop(model, None)) is not None:
            await observed.close()

    def wanted(self) -> dict[str, int]:
        """Models to be filled, each with the sequence of its last drop (0 if none): blocking.

        These are the model chosen at the start, added models that were not dropped, and models active in a workspace.
        """
        if self._settings.embedder == "none":
            return {}
        rows = {str(model): (state, int(dropped)) for model, state, dropped in self._views.rows(_STATES)}
        wanted = {model for model, (state, _) in rows.items() if state == ModelState.ADDED}
        wanted |= set(read_active_models(self._views).values())
        chosen = self.choice.embedder.model_id if self.choice.embedder is not None else None
        if chosen is not None and (chosen not in rows or rows[chosen][0] != ModelState.DROPPED):
            wanted.add(chosen)
        return {model: rows[model][1] if model in rows else 0 for model in sorted(wanted)}

    def known_dim(self, model: str) -> int | None:
        """Dimensions of a model that the journal has recorded, None if there are none; blocking."""
        rows = self._views.rows(_RECORDED_DIM, [model])
        return int(rows[0][0]) if rows else None

    def _observe(self, embedder: Embedder) -> ObservedEmbedder:
        observed = self._running[embedder.model_id] = ObservedEmbedder(embedder, self._clock)
        if self._probes:
            self._probe(observed)
        return observed

    def _probe(self, observed: ObservedEmbedder) -> None:
        self._probing[observed.model_id] = asyncio.create_task(_probe(observed), name="embedder-probe")

    def punctuality(self, model: str, late_s: float | None) -> None:
        """Called by recall: ``late_s`` are the seconds within which a model did not answer a query, None if it answered."""
        if (observed := self._running.get(model)) is not None:
            observed.query_answered(late_s)

    # figures

    def trouble(self, model: str | None) -> EmbedderFailure | None:
        """The problem of the embedder of a model, or None; without addresses, because every token may read it."""
        observed = self._running.get(model) if model is not None else None
        if observed is None:
            return EmbedderFailure(f"this node has no embedder for {model}" if model else "this node has no embedder")
        outcome = observed.outcome
        if outcome.error is None:
            return None
        what = _TROUBLES.get(outcome.error, f"fails with {outcome.error}")
        return EmbedderFailure(f"{outcome.model} {what}", format_ts(outcome.since) if outcome.since is not None else "")

    def state(self, workspace_id: str) -> Mapping[str, Any]:
        """The state of the embedder of a workspace's active model; without addresses, because every token may read it."""
        model = self.active.of(workspace_id)
        observed = self._running.get(model) if model is not None else None
        outcome = SPARSE_ONLY if observed is None else observed.outcome
        shown: dict[str, Any] = as_json(outcome)
        return {name: shown[name] for name in ("mode", "model", "error", "since", "last_success")}

    def outcomes(self) -> dict[str, Mapping[str, Any]]:
        """Model → how its last call ended."""
        return {model: as_json(observed.outcome) for model, observed in sorted(self._running.items())}

    def figures(self) -> Mapping[str, Any]:
        """Figures for ``status``: the default model's embedder, and other embedders."""
        observed = self._default()
        outcome = SPARSE_ONLY if observed is None else observed.outcome
        kind, reason = self.choice.kind, self.choice.reason
        if observed is not None and observed is not self.chosen:
            kind, reason = kind_of(observed.model_id), "activated by command"
        others = [
            {"name": model, **figures}
            for model, figures in self.outcomes().items()
            if observed is None or model != observed.model_id
        ]
        return {"kind": kind, "reason": reason, **as_json(outcome), **({"beside": others} if others else {})}

    def _default(self) -> ObservedEmbedder | None:
        """The embedder of the default model; the choice at the start if there is none."""
        model = self.active.of(SYSTEM_WORKSPACE)
        return (self._running.get(model) if model is not None else None) or self.chosen


async def _probe(embedder: Embedder) -> None:
    """Make one call, so that status has a result before the first query."""
    with contextlib.suppress(CrewJournalError):
        await embedder.probe()


# Runs an embed reactor for every wanted model: starts it when a model is added, and ends it when the model is dropped.


API_TIMEOUT_S: Final = 5.0
"""Seconds for a request to the JetStream API; it takes about a millisecond."""
RETRY_S: Final = 5.0
"""Seconds until models are checked again after the broker or the views failed."""
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
        """Sequences of messages that a durable's reactor holds unacked; None if there is no such reactor here."""
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
            except Exception:  # running reactors continue
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
        """Delete unused durables of dropped models and of fillings before a drop."""
        known = await asyncio.to_thread(self._views.rows, _KNOWN)
        gone = [(str(model), state, int(dropped)) for model, state, dropped in known if dropped]
        if not gone:
            return
        js = self._context.client.jetstream(timeout=API_TIMEOUT_S)
        try:
            durables = await js.consumers_info(JOURNAL_STREAM)
        except (NatsError, TimeoutError) as error:  # an unused durable costs almost nothing; the next start retries
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


# The static table of late interaction in a running node: read at start, or computed in the background.


class StaticTable:
    """Holds the table.

    Args:
        models_dir: Where MiniLM is installed.
        say: Called with a line about a long step.
    """

    def __init__(self, models_dir: Path, say: Callable[[str], None]) -> None:
        self._models_dir = models_dir
        self._say = say
        self._words: Words | None = None

    def current(self) -> Words | None:
        """(pieces, 6) uint64; None until the table is loaded."""
        return self._words

    async def start(self, stack: AsyncExitStack, *, compute: bool) -> None:
        """Read the table; with ``compute``, compute a missing table in the background if the weights are installed."""
        table = await asyncio.to_thread(find_static_table, self._models_dir)
        if table is not None:
            self._words = table.view(np.uint64)
        elif compute:
            task = asyncio.create_task(self._compute(), name="static-table")
            stack.push_async_callback(end_task, task)

    async def _compute(self) -> None:
        try:
            table = await asyncio.to_thread(ensure_static_table, self._models_dir, self._say)
        except Exception:  # recall continues without the table
            _log.exception("static_table_failed")
            return
        if table is not None:
            self._words = table.view(np.uint64)
