"""How far embedding models are filled, and where each is active: the figures on which models are switched.

Invariant: a reading is one look at the views and at what the node fills; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...schemas.active_models import read_active_models
from ...schemas.ports import ViewReader
from ...schemas.views import EMBEDDING_MODELS, EMBEDDINGS

_STATES: Final = f"SELECT model, state FROM {EMBEDDING_MODELS}"
_VECTORS: Final = f"""SELECT model, count(*) FILTER (dim > 0), count(*) FILTER (dim = 0), max(dim) FROM {EMBEDDINGS}
    WHERE $1 IS NULL OR workspace_id = $1 GROUP BY model"""
_EMBEDDABLE: Final = "SELECT count(*) FROM journal_entries WHERE embeddable AND ($1 IS NULL OR workspace_id = $1)"
_DIM: Final = f"SELECT dim FROM {EMBEDDINGS} WHERE model = ? AND dim > 0 LIMIT 1"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far a model is filled: vectors, texts it refuses, and entries still without either."""

    vectors: int
    refused: int
    missing: int
    embeddable: int


@dataclass(frozen=True, slots=True)
class ModelReading:
    """The figures of every model, in one workspace or in all.

    Attributes:
        states: Model → its state, of those that were decided about.
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
        """Every model that was decided about, has vectors or is being filled."""
        return {*self.states, *self.vectors, *self.wanted}

    def coverage(self, model: str) -> Coverage:
        """How far a model is filled."""
        count, refused, _ = self.vectors.get(model, (0, 0, 0))
        return Coverage(count, refused, max(0, self.embeddable - count - refused), self.embeddable)

    def dim(self, model: str) -> int | None:
        """Dimensions of a model's vectors; None while there is none."""
        return self.vectors.get(model, (0, 0, 0))[2] or None


class ModelFigures:
    """Reads them; every call leaves the event loop free.

    Args:
        views: Where models, vectors and entries are.
        wanted: Models being filled, blocking.
    """

    def __init__(self, views: ViewReader, wanted: Callable[[], Mapping[str, int]]) -> None:
        self._views = views
        self._wanted = wanted

    async def read(self, workspace_id: str | None) -> ModelReading:
        """Everything at once, of one workspace or (None) of all."""
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
