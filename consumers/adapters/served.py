"""Embedders behind a server: what they send and what counts as an answer.

Invariant: an answer has one vector per text, of constant dimension, finite, non-zero and L2-normalised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ...schemas.errors import EmbedderBadAnswer
from ...schemas.rules.embed_text import cap_bytes
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES, EMBED_TIMEOUT_S

EXTRA_TEXT_TIMEOUT_S: Final = 2.0
"""Seconds added to the time limit for each further text of a batch: a laptop's CPU embeds 4,096 bytes in one to two
seconds. A full batch of 64 may take 141 s.
"""
PROBE_TEXT: Final = "Is the embedder there?"
FLOAT32_LE: Final = np.dtype("<f4")
OPENAI_PREFIX: Final = "openai/"
"""Begins the names of models of the OpenAI-compatible server; a model of Ollama may have the same name without it."""


@dataclass(frozen=True, slots=True)
class TaskPrefixes:
    """Prefixes that a model expects before its input; servers do not add them."""

    document: str = ""
    query: str = ""


_PASSAGE_QUERY: Final = TaskPrefixes(query="Represent this sentence for searching relevant passages: ")
_SEARCH: Final = TaskPrefixes("search_document: ", "search_query: ")
PREFIXES: Final[Mapping[str, TaskPrefixes]] = {
    "nomic-embed-text": _SEARCH,
    "nomic-embed-text-v1.5": _SEARCH,
    "text-embedding-nomic-embed-text-v1.5": _SEARCH,  # its name in LM Studio
    "nomic-embed-text-v2-moe": _SEARCH,
    "mxbai-embed-large": _PASSAGE_QUERY,
    "mxbai-embed-large-v1": _PASSAGE_QUERY,
    "snowflake-arctic-embed": _PASSAGE_QUERY,
    "snowflake-arctic-embed2": TaskPrefixes(query="query: "),
    "embeddinggemma": TaskPrefixes("title: none | text: ", "task: search result | query: "),
}
"""By model name without namespace and tag, from the model cards. Other models get no prefix."""


def prefixes_of(model: str) -> TaskPrefixes:
    """The prefixes of a model; namespace and tag are ignored (``library/nomic-embed-text:v1.5``)."""
    name = model.rpartition("/")[2].partition(":")[0]
    return PREFIXES.get(name, TaskPrefixes())


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server; ``url`` is None if the settings name none."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)


class ServedEmbedder(ABC):
    """An `Embedder` (see `schemas.ports`) behind a server; connects at the first call.

    Args:
        model_id: Name of the model here.
        model: Name of the model at its server.
        timeout_s: Time for one text, in seconds. A batch of n texts has ``timeout_s + (n - 1) ·
            EXTRA_TEXT_TIMEOUT_S``.
        dim: Expected dimension; None to take it from the first answer.
    """

    def __init__(
        self, model_id: str, model: str, *, timeout_s: float = EMBED_TIMEOUT_S, dim: int | None = None
    ) -> None:
        self._model_id = model_id
        self._model = model
        self._prefixes = prefixes_of(model)
        self._timeout_s = timeout_s
        self._dim = dim

    @property
    def model_id(self) -> str:
        """Name of the model."""
        return self._model_id

    @property
    def dim(self) -> int | None:
        """Dimensions; None before the first answer."""
        return self._dim

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order, in requests of at most 64 texts.

        Raises:
            EmbedderUnavailable: Refused, timed out, too many requests, or 5xx.
            EmbedderModelMissing: The server does not have the model, or it does not embed.
            EmbedderBadAnswer: The answer does not hold the requested vectors.
            EmbedderInputRejected: The server refuses an input of the batch.
        """
        vectors: list[bytes] = []
        for start in range(0, len(texts), EMBED_BATCH):
            vectors += await self._embed(
                [self._prefixes.document + text for text in texts[start : start + EMBED_BATCH]]
            )
        return vectors

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query. Errors as in `embed_documents`."""
        return (await self._embed([self._prefixes.query + text]))[0]

    async def probe(self) -> None:
        """Embed a sentence. Errors as in `embed_documents`."""
        await self.embed_query(PROBE_TEXT)

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    async def _request(self, inputs: list[str], limit_s: float) -> Sequence[Sequence[float]]:
        """Send one request; the vectors in the order of the texts."""

    async def _embed(self, texts: Sequence[str]) -> list[bytes]:
        inputs = [cap_bytes(text, EMBED_INPUT_BYTES) for text in texts]
        limit_s = self._timeout_s + (len(inputs) - 1) * EXTRA_TEXT_TIMEOUT_S
        return self._checked(await self._request(inputs, limit_s), len(inputs))

    def _checked(self, embeddings: Sequence[Sequence[float]], count: int) -> list[bytes]:
        if len(embeddings) != count:
            raise EmbedderBadAnswer(f"{self._model} gave {len(embeddings)} vectors for {count} texts")
        dims = {len(vector) for vector in embeddings}
        expected = self._dim if self._dim is not None else len(embeddings[0])
        if dims != {expected} or not expected:
            raise EmbedderBadAnswer(
                f"{self._model} gave vectors of {sorted(dims)} dimensions, not {expected or 'any'}",
                hint="the name may now stand for another model: use the former one, or activate the new one",
            )
        rows = np.array(embeddings, dtype=np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not (norms > 0.0).all():
            raise EmbedderBadAnswer(f"{self._model} gave a vector that is zero or not finite")
        self._dim = expected
        return [row.tobytes() for row in (rows / norms).astype(FLOAT32_LE)]
