"""What a cosine of an embedding model means: log odds that a text belongs to a query.

Models differ: of two unrelated texts the cosine is .07 under MiniLM and .75 under multilingual-e5-small. So every model is
measured with reference texts (``schemas/recall/reference_texts``): the cosines of queries with their own text and with all
others. A logistic regression over the cosine, the query's mean cosine with texts and the text's mean cosine with queries
(both correct for texts that are near to everything, Conneau et al., 2018, "CSLS") gives log odds that mean the same under
every model; a better model reaches higher ones. Each mean is taken over English texts and over others, and the higher one
counts: a model that knows only English finds all German texts similar, which is no evidence.

Invariant: depends on the model alone, never on what is remembered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import structlog

from ...schemas.core.errors import EmbedderError
from ...schemas.core.ports import Embedder
from ...schemas.recall.reference_texts import MEASURED, reference_texts
from ..index.query_embedding import EmbedderOf
from ..index.vectors import Vectors, query_vector

Floats = npt.NDArray[np.float64]

RIDGE: Final = 1.0
"""Penalty on the weights of standardised figures."""
UNRELATED: Final = 0.1
"""Weight of a pair that does not belong together; there are 47 for each that does."""
TELLS: Final = 0.5
"""Standard deviations by which related pairs must be above unrelated ones in the mean (MiniLM 3.4,
multilingual-e5-small 2.0)."""
_STEPS: Final = 50
_CONVERGED: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants of one model.

    Attributes:
        model: Its name.
        texts: (2, d) float32 mean vectors of the English reference texts and of the others.
        queries: (2, d) float32 likewise of the reference queries.
        weights: Weights of cosine, mean cosine of the query and mean cosine of the text.
        bias: Added to their sum.
        mean: Mean cosine of a query and a text that do not belong together.
        deviation: Standard deviation of these cosines.
    """

    model: str
    texts: Vectors
    queries: Vectors
    weights: tuple[float, float, float]
    bias: float
    mean: float
    deviation: float

    def meaning(self, cosines: Floats, query: Vectors, vectors: Vectors) -> Floats:
        """(n,) float64 log odds that texts belong to a query by meaning alone.

        Args:
            cosines: (n,) of the texts with the query.
            query: (d,) float32, L2-normalised.
            vectors: (n, d) float32, L2-normalised, of the texts.
        """
        of_cosine, of_query, of_text = self.weights
        near: Floats = (vectors @ self.queries.T).max(1).astype(np.float64)
        return self.bias + of_cosine * cosines + of_query * float((self.texts @ query).max()) + of_text * near

    @property
    def usual(self) -> Vectors:
        """(d,) float32 mean vector of all sorts of English queries."""
        mean: Vectors = self.queries[0]
        return mean

    @property
    def dim(self) -> int:
        """Dimensions of the model's vectors."""
        return int(self.texts.shape[1])

    def distance(self, cosines: Floats) -> Floats:
        """(n,) float64 standard deviations above the mean of unrelated pairs."""
        above: Floats = (cosines - self.mean) / self.deviation
        return above


def calibrate(
    model: str, texts: Vectors, questions: Vectors, situations: Vectors, foreign: npt.NDArray[np.bool_]
) -> Calibration | None:
    """Measure a model; None if its cosines do not tell texts that belong together from others.

    Args:
        model: Its name.
        texts: (n, d) float32, L2-normalised: the vectors of the reference texts.
        questions: (n, d) likewise: of the question that each answers.
        situations: (n, d) likewise: of the situation to which each belongs.
        foreign: (n,) bool: which of them are in another language than English; some, but not all.
    """
    count = len(texts)
    queries = np.concatenate((questions, situations))
    cosines = queries.astype(np.float64) @ texts.T.astype(np.float64)
    own = np.concatenate((np.eye(count, dtype=bool), np.eye(count, dtype=bool)))
    both = np.concatenate((foreign, foreign))
    others = ~own
    of_query = np.maximum(*(cosines.mean(1, where=others & group) for group in (~foreign, foreign)))[:, None]
    of_text = np.maximum(*(cosines.mean(0, where=others & group[:, None]) for group in (~both, both)))[None, :]
    unrelated = cosines[~own]
    if float(cosines[own].mean() - unrelated.mean()) <= TELLS * float(unrelated.std()):
        return None
    figures = np.stack([cosines, np.broadcast_to(of_query, own.shape), np.broadcast_to(of_text, own.shape)], -1)
    labels = own.ravel()
    weights, bias = logistic(figures.reshape(-1, 3), labels, np.where(labels, 1.0, UNRELATED), RIDGE)
    return Calibration(
        model,
        np.stack([texts[group].mean(0, dtype=np.float64) for group in (~foreign, foreign)]).astype(np.float32),
        np.stack([queries[group].mean(0, dtype=np.float64) for group in (~both, both)]).astype(np.float32),
        (float(weights[0]), float(weights[1]), float(weights[2])),
        bias,
        float(unrelated.mean()),
        float(unrelated.std()),
    )


def logistic(figures: Floats, labels: npt.NDArray[np.bool_], weights: Floats, ridge: float) -> tuple[Floats, float]:
    """Weights (in the figures' own units) and bias of a logistic regression, by Newton's method.

    Args:
        figures: (n, f) float64.
        labels: (n,) bool.
        weights: (n,) of the examples.
        ridge: Penalty on the weights of the standardised figures.
    """
    mean, spread = np.average(figures, 0, weights), figures.std(0) + 1e-9
    x = np.c_[(figures - mean) / spread, np.ones(len(figures))]
    penalty = np.eye(x.shape[1]) * ridge
    penalty[-1, -1] = 1e-6
    beta = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ beta, -30.0, 30.0)))
        hessian = (x * (weights * p * (1.0 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(hessian, x.T @ (weights * (p - labels)) + penalty @ beta)
        beta -= step
        if np.abs(step).max() < _CONVERGED:
            break
    own: Floats = beta[:-1] / spread
    return own, float(beta[-1] - own @ mean)


@cache
def known_calibration(model: str | None) -> Calibration | None:
    """The calibration of a model whose weights are pinned (``calibrations.json``); None for any other."""
    data = json.loads(resources.files(__package__).joinpath("calibrations.json").read_text("utf-8"))
    return None if model not in data else _read(str(model), data[model])


def _read(model: str, data: Mapping[str, Any]) -> Calibration:
    return Calibration(
        model,
        np.array(data["texts"], np.float32),
        np.array(data["queries"], np.float32),
        tuple(data["weights"]),
        data["bias"],
        data["mean"],
        data["deviation"],
    )


# Measures the embedding models of a node with the reference texts, in the background, once per model and process.


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
