"""The embedding models of a journal: fill a second model in addition to the first, switch to it, switch back, drop a model.

Users must be able to test a model on their own memories before recall uses it, and to switch back at once. So a model
is added (a reactor computes vectors from the journal's beginning on), activated (recall uses its vectors), and dropped
(its vectors are deleted). Each decision is an event, so that a rebuild gives the same state.

Invariant: decisions are made one after the other, each after the views show the previous one; a model in use is never
dropped, and a formerly used model still gets vectors, so that switching back loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...schemas.core.entry import ActorType
from ...schemas.core.errors import (
    EmbedderBadAnswer,
    EmbedderModelMissing,
    EmbedderUnavailable,
    InvalidQuery,
    ModelInUse,
    ModelNotFilled,
    NotFound,
    Unavailable,
)
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import ViewReader
from ...schemas.models import operations as ops
from ...schemas.models.events import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from ...schemas.models.tables import (
    ACTIVATIONS_PROJECTION,
    EMBEDDING_MODELS,
    EMBEDDINGS,
    VECTORS_PROJECTION,
    ModelState,
    active_in,
    read_active_models,
)
from ...schemas.settings import EmbedderKind
from ..desk import Caller
from ..journal.intake.append import Journal
from ..node import Answers, Node
from ..recall.expectations import Expectations
from ..recall.model_search import ModelComparison

# Records as an event which model recall uses, so that it stays the same across restarts and nodes.
#
# Invariant: an activation is recorded only if it changes the model; a start with the same model records nothing.


_KNOWN = f"SELECT DISTINCT model FROM {EMBEDDINGS} WHERE dim > 0 ORDER BY model"


async def check_model(views: ViewReader, model: str, runnable: Collection[str]) -> None:
    """Refuse a model that has neither an embedder nor vectors: a misspelt name would silently disable dense recall.

    Args:
        views: Hold the vectors there are.
        model: The model to activate.
        runnable: Models that this node's configuration can run.

    Raises:
        NotFound: If the model is not runnable and has no vectors.
    """
    if model in runnable:
        return
    known = {str(name) for (name,) in await asyncio.to_thread(views.rows, _KNOWN, [])}
    if model not in known:
        raise NotFound(
            "no embedder here runs that model, and there are no vectors of it",
            hint=f"use one of {', '.join(sorted(known.union(runnable)))}",
            field="model",
        )


async def activate_embeddings(
    journal: Journal,
    views: ViewReader,
    *,
    model: str,
    embedder: EmbedderKind,
    dim: int | None = None,
    reason: str = "",
    workspace_id: str | None = None,
    actor_id: str | None = None,
) -> dict[str, Any]:
    """Activate ``model`` for one workspace or (None) as the default; without ``actor_id``, the system is the actor.

    Returns:
        ``workspace_id``, ``model``, ``changed`` and, if changed, ``seq``.

    Raises:
        BrokerUnavailable: If the activation could not be recorded.
    """
    where = workspace_id or SYSTEM_WORKSPACE
    if (await asyncio.to_thread(read_active_models, views)).get(where) == model:
        return {"workspace_id": workspace_id, "model": model, "changed": False}
    recorded = await journal.record(
        where,
        EmbeddingsActivated.model_validate({"model": model, "embedder": embedder, "dim": dim, "reason": reason[:500]}),
        summary=f"Recall uses vectors of {model} from here on",
        actor_type=ActorType.SYSTEM if actor_id is None else ActorType.USER,
        actor_id=actor_id,
    )
    return {"workspace_id": workspace_id, "model": model, "changed": True, "seq": recorded.seq}


# Figures of embedding models: how many vectors each has, and where each is active.


_STATES: Final = f"SELECT model, state FROM {EMBEDDING_MODELS}"
_VECTORS: Final = f"""SELECT model, count(*) FILTER (dim > 0), count(*) FILTER (dim = 0), max(dim) FROM {EMBEDDINGS}
    WHERE $1 IS NULL OR workspace_id = $1 GROUP BY model"""
_EMBEDDABLE: Final = "SELECT count(*) FROM journal_entries WHERE embeddable AND ($1 IS NULL OR workspace_id = $1)"
_DIM: Final = f"SELECT dim FROM {EMBEDDINGS} WHERE model = ? AND dim > 0 LIMIT 1"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The state of a model: number of vectors, of refused texts, and of entries with neither."""

    vectors: int
    refused: int
    missing: int
    embeddable: int


@dataclass(frozen=True, slots=True)
class ModelReading:
    """The figures of every model, in one workspace or in all.

    Attributes:
        states: Model → its state, for models with a recorded decision.
        vectors: Model → vectors, refused texts and dimensions (0 without a vector), for models that have any.
        active: Workspace → the model it uses, as ``read_active_models``.
        wanted: Model being filled → the sequence of its last drop.
        embeddable: Entries that are to have a vector.
    """

    states: Mapping[str, str]
    vectors: Mapping[str, tuple[int, int, int]]
    active: Mapping[str, str]
    wanted: Mapping[str, int]
    embeddable: int

    @property
    def models(self) -> set[str]:
        """Every model that has a recorded decision or vectors or is being filled."""
        return {*self.states, *self.vectors, *self.wanted}

    def coverage(self, model: str) -> Coverage:
        """How far a model is filled."""
        count, refused, _ = self.vectors.get(model, (0, 0, 0))
        return Coverage(count, refused, max(0, self.embeddable - count - refused), self.embeddable)

    def dim(self, model: str) -> int | None:
        """Dimensions of a model's vectors; None while there is none."""
        return self.vectors.get(model, (0, 0, 0))[2] or None


class ModelFigures:
    """Reads the figures of models without blocking the event loop.

    Args:
        views: Where models, vectors and entries are.
        wanted: Models being filled, blocking.
    """

    def __init__(self, views: ViewReader, wanted: Callable[[], Mapping[str, int]]) -> None:
        self._views = views
        self._wanted = wanted

    async def read(self, workspace_id: str | None) -> ModelReading:
        """All figures of one workspace or (None) of all."""
        return await asyncio.to_thread(self._read, workspace_id)

    async def state(self, model: str) -> str | None:
        """The last decision about a model; None if there is none."""
        return (await asyncio.to_thread(self._states)).get(model)

    async def dim(self, model: str) -> int | None:
        """Dimensions that the journal has of a model, without counting anything."""
        rows = await asyncio.to_thread(self._views.rows, _DIM, [model])
        return int(rows[0][0]) if rows else None

    def _states(self) -> dict[str, str]:
        return {str(model): str(state) for model, state in self._views.rows(_STATES)}

    def _read(self, workspace_id: str | None) -> ModelReading:
        views = self._views
        vectors = {
            str(model): (int(count), int(refused), int(dim or 0))
            for model, count, refused, dim in views.rows(_VECTORS, [workspace_id])
        }
        ((embeddable,),) = views.rows(_EMBEDDABLE, [workspace_id])
        return ModelReading(self._states(), vectors, read_active_models(views), self._wanted(), int(embeddable))


PROBE_TIMEOUT_S: Final = 20.0
"""Seconds that a new model may take to embed one sentence, because a server first loads a large model from disk."""
SETTLE_TIMEOUT_S: Final = 5.0
"""Seconds that an activation waits for the indexes in use to load the new vectors; 10,000 are loaded in 0.2 s."""
_DECIDED_ON: Final = (ACTIVATIONS_PROJECTION, VECTORS_PROJECTION)
_NAME: Final = re.compile(r"[A-Za-z0-9._:/-]{1,96}\Z")


class EmbeddingModels:
    """Fills, switches, compares and drops models."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._embedders = node.embedders
        self._comparison = node.use(ModelComparison)
        self._expectations = node.use(Expectations)
        self._figures = ModelFigures(node.views, node.embedders.wanted)
        self._one_at_a_time = asyncio.Lock()

    def name_of(self, model: str) -> str:
        """The whole name of a model.

        Raises:
            InvalidQuery: If it cannot be one.
        """
        name = self._embedders.aliases.get(model, model)
        if not _NAME.match(name):
            raise InvalidQuery(
                "not the name of a model",
                hint="use minilm, a name from `ollama list`, or openai/NAME",
                field="model",
            )
        return name

    async def show(self, caller: Caller, _asked: ops.ModelsRequest) -> ops.ModelsAnswer:
        """Every model that has vectors or is wanted: its state, where it is active, and how far it is filled.

        With figures of all workspaces, the reactors that fill the models are shown as well.
        """
        workspace_id = caller.workspace_or_all
        known = await self._figures.read(workspace_id)
        filling = await self._embedders.filling() if workspace_id is None else {}
        outcomes = self._embedders.outcomes()
        models = []
        for model in sorted(known.models):
            filled = known.coverage(model)
            is_filled = model in known.wanted
            shown: dict[str, Any] = {
                "model": model,
                "embedder": self._embedders.kind_of(model),
                "state": known.states.get(model, ModelState.ACTIVATED),
                "active": active_in(known.active, workspace_id or SYSTEM_WORKSPACE) == model,
                "filled": is_filled,
                "generation": known.wanted.get(model, 0),
                "dim": known.dim(model),
                "vectors": filled.vectors,
                "refused": filled.refused,
                "missing": filled.missing if is_filled else None,
                "embeddable": filled.embeddable,
                "outcome": outcomes.get(model),
            }
            if workspace_id is None:
                shown["active_in"] = sorted(name for name, used in known.active.items() if used == model)
                shown["filling"] = filling.get(model)
            models.append(shown)
        return ops.ModelsAnswer(workspace_id=workspace_id, models=tuple(map(ops.ModelShown.model_validate, models)))

    async def add(self, caller: Caller, request: ops.AddModelRequest) -> ops.ModelChange:
        """Fill a further model in the background; it is first tested once, so that only a working model is recorded.

        Raises:
            InvalidQuery: If not the name of a model.
            NotFound: If the server has no such model.
            EmbedderError: If it cannot be reached, or answers with other dimensions than the journal has of it.
            Unavailable: If the node has no embedder.
        """
        name = self.name_of(request.model)
        async with self._one_at_a_time:
            if await self._figures.state(name) == ModelState.ADDED:
                return ops.ModelChange(model=name, changed=False, dim=await self._figures.dim(name))
            dim = await self._try_out(name)
            added = EmbeddingsAdded(model=name, embedder=self._embedders.kind_of(name))
            seq = await self._record(caller, added, f"Vectors of {name} are filled beside the others")
            return ops.ModelChange(model=name, changed=True, dim=dim, seq=seq)

    async def activate(self, caller: Caller, request: ops.ActivateModelRequest) -> ops.ModelActivated:
        """Let recall use a model at once in one workspace, or in all workspaces without an own activation.

        The previous model still gets vectors. Returns when recalls use the new vectors, at the latest after
        SETTLE_TIMEOUT_S.

        Raises:
            NotFound: If the model cannot run here and has no vectors, or it was dropped.
            ModelNotFilled: If the model is a different one and entries lack its vectors, unless forced.
            ExpectationsNotMet: If recalls would not return what a workspace expects, unless forced with a reason.
        """
        name = self.name_of(request.model)
        workspace_id = caller.workspace_or_all
        where = workspace_id or SYSTEM_WORKSPACE
        async with self._one_at_a_time:
            wanted = await asyncio.to_thread(self._embedders.wanted)
            if await self._figures.state(name) == ModelState.DROPPED:
                raise NotFound(f"{name} was dropped", hint=f"`model add {name}` fills it again", field="model")
            runnable = {*wanted, *(self._embedders.runnable if workspace_id is None else ())}
            await check_model(self._views, name, runnable)
            former = active_in(await asyncio.to_thread(read_active_models, self._views), where)
            if former != name and not request.force:
                await self._check_filled(name, workspace_id)
            if former != name:
                await self._check_expectations(name, workspace_id, request)
            if former is not None and former != name and await self._figures.state(former) == ModelState.ACTIVATED:
                kept = EmbeddingsAdded(model=former, embedder=self._embedders.kind_of(former))
                await self._record(caller, kept, f"Vectors of {former} go on being filled, to switch back to")
            result = await activate_embeddings(
                self._node.journal,
                self._views,
                model=name,
                embedder=self._embedders.kind_of(name),
                dim=await self._figures.dim(name),
                reason=request.reason,
                workspace_id=workspace_id,
                actor_id=caller.actor,
            )
            if result["changed"]:
                result["former"] = former
                await self._node.shows(int(result["seq"]), *_DECIDED_ON)
                await self._settled()
        filled = (await self._figures.read(workspace_id)).coverage(name)
        return ops.ModelActivated(
            **result, vectors=filled.vectors, missing=filled.missing, embeddable=filled.embeddable
        )

    async def _check_filled(self, name: str, workspace_id: str | None) -> None:
        filled = (await self._figures.read(workspace_id)).coverage(name)
        if filled.missing:
            raise ModelNotFilled(
                f"{filled.missing} of {filled.embeddable} entries have no vector of {name}: recall would not find them by "
                "meaning",
                hint=f'`model add {name} --wait` fills it, or force it: --force, over HTTP "force": true',
                field="model",
            )

    async def _check_expectations(self, name: str, workspace_id: str | None, request: ops.ActivateModelRequest) -> None:
        """Refuse a model with which recalls do not return what workspaces expect, unless forced with a reason."""
        if not (request.force and request.reason.strip()):
            await self._expectations.check(workspace_id, name)

    async def drop(self, caller: Caller, request: ops.DropModelRequest) -> ops.ModelChange:
        """Delete a model's vectors and stop filling it; a later ``add`` fills it from the beginning.

        Raises:
            NotFound: If there is no such model.
            ModelInUse: If recall uses it somewhere.
        """
        name = self.name_of(request.model)
        async with self._one_at_a_time:
            known = await self._figures.read(None)
            if name not in known.models:
                there = ", ".join(sorted({*known.states, *known.vectors})) or "none"
                raise NotFound("there is no such model here", hint=f"there are {there}", field="model")
            if where := sorted(workspace for workspace, used in known.active.items() if used == name):
                shown = ", ".join("the default" if workspace == SYSTEM_WORKSPACE else workspace for workspace in where)
                raise ModelInUse(
                    f"recall uses {name}: {shown}", hint="`model activate` another model first", field="model"
                )
            if known.states.get(name) == ModelState.DROPPED:
                return ops.ModelChange(model=name, changed=False)
            dropped = EmbeddingsDropped(model=name, reason=request.reason)
            seq = await self._record(caller, dropped, f"Vectors of {name} are dropped")
            return ops.ModelChange(model=name, changed=True, seq=seq)

    async def compare(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """How far two models agree on the queries a workspace was asked; see ``ModelComparison``.

        Raises:
            NotFound: If a model is not filled, or no query was logged.
            EmbedderError: If a model does not work.
        """
        names = self.name_of(models[0]), self.name_of(models[1])
        known = await self._figures.read(workspace_id)
        coverage = {}
        for name in names:
            filled = known.coverage(name)
            if not filled.vectors:
                raise NotFound(
                    f"there are no vectors of {name} in the workspace {workspace_id}",
                    hint=f"`model add {name}` fills it; `model list` says how far it is",
                    field="model",
                )
            coverage[name] = asdict(filled)
        records = await self._comparison.begin(workspace_id, names, queries=queries, k=k, recipe=recipe)
        return _with_coverage(records, names, coverage)

    async def _try_out(self, name: str) -> int | None:
        embedder = self._embedders.running(name)
        if embedder is None:
            raise Unavailable(
                "this node has no embedder", hint="start it with another --embedder than none", field="model"
            )
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await embedder.probe()
            recorded = await self._figures.dim(name)
            if recorded is not None and embedder.dim != recorded:
                raise EmbedderBadAnswer(
                    f"{name} answers with {embedder.dim} dimensions, the journal has {recorded} of it",
                    hint=f"another model of the same name: `model drop {name}` first",
                )
        except BaseException as error:
            if name not in await asyncio.to_thread(self._embedders.wanted):
                await self._embedders.release(name)
            if isinstance(error, EmbedderModelMissing):
                raise NotFound(error.message, hint=error.hint, field="model") from error
            if isinstance(error, TimeoutError):
                raise EmbedderUnavailable(
                    f"{name} did not embed a sentence within {PROBE_TIMEOUT_S:g} s", hint="is its server busy?"
                ) from error
            raise
        return embedder.dim

    async def _settled(self) -> None:
        """Wait for a limited time until recalls use the new vectors."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await self._node.recall.settled()

    async def _record(self, caller: Caller, payload: EmbeddingsAdded | EmbeddingsDropped, summary: str) -> int:
        """Record a decision, and wait until the views show it, so that the next decision is based on it."""
        decided = await self._node.decide(caller, payload, summary, *_DECIDED_ON, workspace_id=SYSTEM_WORKSPACE)
        return decided.seq


async def _with_coverage(
    records: AsyncIterator[Mapping[str, Any]], models: tuple[str, str], coverage: Mapping[str, Mapping[str, int]]
) -> AsyncIterator[Mapping[str, Any]]:
    async for record in records:
        if "result" in record:
            yield {"result": {"models": list(models), "coverage": coverage, **record["result"]}}
        else:
            yield record


ANSWERS: Final[Answers] = (
    (ops.EMBEDDING_MODELS, EmbeddingModels.show),
    (ops.ADD_MODEL, EmbeddingModels.add),
    (ops.ACTIVATE_MODEL, EmbeddingModels.activate),
    (ops.DROP_MODEL, EmbeddingModels.drop),
)
