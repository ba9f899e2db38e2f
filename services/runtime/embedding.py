"""The node's embedding models: one chosen at start, others added beside it; each observed, probed and closed in one place.

Invariant: recall and the reactors share one observed embedder for each model, so health reports its last outcome. The views
say which models are wanted, so they are the same after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

from ...consumers.adapters.choose import (
    EmbedderChoice,
    choose_embedder,
    kind_of,
    make_embedder,
    ollama_host_of,
    runnable_models,
)
from ...consumers.adapters.minilm_weights import MODEL_ID
from ...consumers.adapters.outcome import SLOW, SPARSE_ONLY, ObservedEmbedder
from ...consumers.adapters.served import Endpoint
from ...consumers.reactors.embed import EmbedReactor
from ...schemas.active_models import read_active_models
from ...schemas.errors import (
    CrewJournalError,
    EmbedderBadAnswer,
    EmbedderModelMissing,
    EmbedderUnavailable,
)
from ...schemas.events.embeddings import ModelKind
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.ports import Embedder, ViewReader
from ...schemas.rules.health import EmbedderFailure
from ...schemas.settings import Settings
from ...schemas.timestamps import format_ts
from ...schemas.views import EMBEDDING_MODELS, EMBEDDINGS, ModelState
from ..endings import end_task
from ..journal.intake.append import Journal
from ..memory.activation import activate_embeddings
from ..operating.status import as_json
from ..query.hot.active_models import ActiveModels
from .figures import statuses

_RECORDED_DIM: Final = f"SELECT dim FROM {EMBEDDINGS} WHERE model = ? AND dim > 0 LIMIT 1"
"""What the journal knows of a model: one that changed under the same name must not mix its vectors in."""
_STATES: Final = f"SELECT model, state, dropped_seq FROM {EMBEDDING_MODELS}"

_TROUBLES: Final = {
    EmbedderUnavailable.__name__: "does not answer",
    EmbedderModelMissing.__name__: "is not on its server",
    EmbedderBadAnswer.__name__: "answers with something that is not one of its vectors",
    SLOW: "answers queries too late",
}
"""What the last outcome means, in words."""


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
        """Probe every model in the background from now on: loading MiniLM takes a core, which the start needs."""
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
        """The choice at the start."""
        return self._running.get(self.choice.embedder.model_id) if self.choice.embedder is not None else None

    @property
    def aliases(self) -> Mapping[str, str]:
        """Short names of models."""
        return {"minilm": MODEL_ID}

    @property
    def runnable(self) -> Collection[str]:
        """Models that this node would run as it is set up."""
        return runnable_models(self._settings)

    def kind_of(self, model: str) -> ModelKind:
        """The adapter that runs a model."""
        return kind_of(model)

    async def filling(self) -> Mapping[str, Mapping[str, Any]]:
        """Model → status of the reactor that fills it."""
        return await statuses(self.reactors())

    def running(self, model: str) -> Embedder | None:
        """The embedder of a model, made if there is none yet; None if the node does not embed."""
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
        """Close a model that is not wanted any more."""
        if (probing := self._probing.pop(model, None)) is not None:
            await end_task(probing)
        if (observed := self._running.pop(model, None)) is not None:
            await observed.close()

    def wanted(self) -> dict[str, int]:
        """Models to be filled, each with the sequence of its last drop (0 if none): blocking.

        The one chosen at the start, all that were added and not dropped, and those active in a workspace.
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
        """Dimensions that the journal has recorded of a model, None if none are: blocking."""
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
        """Called by recall with the seconds within which a model did not answer a query, None if it did."""
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
        """What ``status`` shows: the default model's embedder, and the others beside it."""
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
    """Make one real call, so that status has an outcome before the first query."""
    with contextlib.suppress(CrewJournalError):
        await embedder.probe()
