"""Measures the embedding models of a node with the reference texts, in the background, once per model and process.

Invariant: a recall never waits for it. Until a model is measured, its cosines count by what the scope shows of them.
"""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
import structlog

from ....schemas.errors import EmbedderError
from ....schemas.ports import Embedder
from ....schemas.rules.reference_texts import MEASURED, reference_texts
from ..hot.vector_matrix import Vectors, query_vector
from ..query_embedding import EmbedderOf
from .calibration import Calibration, calibrate, known_calibration

PAUSE_S: Final = 60.0
"""Seconds until a model that failed is measured again."""
_log = structlog.get_logger(__name__)


def no_embedder(_model: str) -> None:
    """The default where no model runs."""


class Calibrations:
    """The calibrations of a node's models.

    Args:
        embedder: Returns the embedder that runs a model, or None.
    """

    def __init__(self, embedder: EmbedderOf) -> None:
        self._embedder = embedder
        self._known: dict[tuple[str, int], Calibration | None] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._again_at: dict[tuple[str, int], float] = {}

    def of(self, model: str | None, dim: int) -> Calibration | None:
        """The calibration of a model's vectors; None while there is none. Starts the measurement, so call it in the loop.

        Args:
            model: The model's name.
            dim: Dimensions of its vectors: a model of the same name with others is another model.
        """
        if model is None:
            return None
        key = (model, dim)
        if (known := known_calibration(model)) is not None and known.dim == dim:
            return known
        if key in self._known:
            return self._known[key]
        embedder = self._embedder(model)
        loop = asyncio.get_running_loop()
        if embedder is not None and key not in self._tasks and loop.time() >= self._again_at.get(key, 0.0):
            self._tasks[key] = loop.create_task(self._measure(embedder, key), name="calibration")
        return None

    async def measured(self) -> None:
        """Wait until no measurement runs."""
        while tasks := list(self._tasks.values()):
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Cancel running measurements."""
        for task in self._tasks.values():
            task.cancel()

    async def _measure(self, embedder: Embedder, key: tuple[str, int]) -> None:
        model, dim = key
        try:
            calibration = await measure(embedder, model)
            if calibration is not None and calibration.dim != dim:
                raise ValueError(f"vectors of {calibration.dim} dimensions instead of {dim}")
            self._known[key] = calibration
            _log.info("model_calibrated", model=model, dim=dim, tells_texts_apart=calibration is not None)
        except (
            EmbedderError,
            RuntimeError,
            ValueError,
            np.linalg.LinAlgError,
        ) as error:  # RuntimeError: its client was closed
            self._again_at[key] = asyncio.get_running_loop().time() + PAUSE_S
            _log.warning("model_not_calibrated", model=model, error=type(error).__name__)
        finally:
            del self._tasks[key]


async def measure(embedder: Embedder, model: str) -> Calibration | None:
    """Embed the first reference texts and their queries, and fit; None if the model does not tell texts apart.

    Raises:
        EmbedderError: If the model fails.
        ValueError: If its vectors differ in dimensions.
    """
    memories = reference_texts().memories[:MEASURED]
    texts = _rows(await embedder.embed_documents([memory.text for memory in memories]))
    questions = _rows([await embedder.embed_query(memory.paraphrase) for memory in memories])
    situations = _rows([await embedder.embed_query(memory.situation) for memory in memories])
    foreign = np.array([memory.foreign for memory in memories], bool)
    return await asyncio.to_thread(calibrate, model, texts, questions, situations, foreign)


def _rows(vectors: list[bytes]) -> Vectors:
    """(n, d) float32, L2-normalised; ValueError if their dimensions differ."""
    return np.stack([query_vector(vector) for vector in vectors])
