"""The Ollama embedder.

Invariant: an answer has one vector per text, of constant dimension, finite, non-zero and L2-normalised. Every failure
of the server is an `EmbedderError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Final, NoReturn

import httpx
import numpy as np
from ollama import AsyncClient, ResponseError
from pydantic import ValidationError

from ...schemas.errors import (
    EmbedderBadAnswer,
    EmbedderInputRejected,
    EmbedderModelMissing,
    EmbedderUnavailable,
)
from ...schemas.rules.embed_text import cap_bytes
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES, EMBED_TIMEOUT_S, OLLAMA_DEFAULT_MODEL
from .loopback import is_loopback

CONNECT_TIMEOUT_S: Final = 5.0
"""Seconds to connect; our event loop may be busy for one second. Starts and recalls have shorter limits of their own.
"""
EXTRA_TEXT_TIMEOUT_S: Final = 2.0
"""Seconds added to the time limit for each further text of a batch: a laptop's CPU embeds 4,096 bytes in one to two
seconds. A full batch of 64 may take 141 s.
"""
PROBE_TEXT: Final = "Is the embedder there?"
FLOAT32_LE: Final = np.dtype("<f4")
NOT_FOUND: Final = 404
INPUT_STATUSES: Final = frozenset({400, 413, 422})
"""Status codes that concern the input. All others from 400 on concern access, load or a server that is not Ollama."""
NO_MODEL_MARKERS: Final = ("does not support embed", "invalid model")
"""Texts of Ollama's errors for a model that cannot embed and for an invalid name."""
NO_NUMBER_MARKER: Final = "unsupported value: NaN"
"""Text of the error 500 of Ollama's JSON encoder when the model computed NaN."""
TOO_LONG_MARKERS: Final = ("exceeds the context length", "exceeds maximum context length")
"""Texts with which some versions refuse an input, with status 500."""
SHOWN_CHARS: Final = 200
"""Characters of a server's error text that are kept."""


@dataclass(frozen=True, slots=True)
class TaskPrefixes:
    """Prefixes that a model expects before its input; Ollama does not add them."""

    document: str = ""
    query: str = ""


_PASSAGE_QUERY: Final = TaskPrefixes(query="Represent this sentence for searching relevant passages: ")
PREFIXES: Final[Mapping[str, TaskPrefixes]] = {
    "nomic-embed-text": TaskPrefixes("search_document: ", "search_query: "),
    "nomic-embed-text-v2-moe": TaskPrefixes("search_document: ", "search_query: "),
    "mxbai-embed-large": _PASSAGE_QUERY,
    "snowflake-arctic-embed": _PASSAGE_QUERY,
    "snowflake-arctic-embed2": TaskPrefixes(query="query: "),
    "embeddinggemma": TaskPrefixes("title: none | text: ", "task: search result | query: "),
}
"""By model name without namespace and tag, from the model cards. Other models get no prefix."""


def prefixes_of(model: str) -> TaskPrefixes:
    """The prefixes of a model; namespace and tag are ignored (``library/nomic-embed-text:v1.5``)."""
    name = model.rpartition("/")[2].partition(":")[0]
    return PREFIXES.get(name, TaskPrefixes())


class OllamaEmbedder:
    """An `Embedder` (see `schemas.ports`) on Ollama's batched ``/api/embed``.

    Opens no connection until the first call.

    Args:
        host: URL or HOST[:PORT] of the server; the environment is not read.
        model: The model's name as Ollama lists it.
        timeout_s: Time for one text, in seconds. A batch of n texts has ``timeout_s + (n - 1) ·
            EXTRA_TEXT_TIMEOUT_S``.
        connect_timeout_s: Time for the connection, in seconds.
        dim: Expected dimension; None to take it from the first answer.

    Raises:
        EmbedderUnavailable: `host` is not a valid address.
    """

    def __init__(
        self,
        host: str,
        model: str = OLLAMA_DEFAULT_MODEL,
        *,
        timeout_s: float = EMBED_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        dim: int | None = None,
    ) -> None:
        self._host = host
        self._model = model
        self._prefixes = prefixes_of(model)
        self._timeout_s = timeout_s
        self._dim = dim
        try:
            direct = is_loopback(host)  # a proxy from the environment cannot reach the loopback interface
            self._client = AsyncClient(
                host,
                timeout=httpx.Timeout(None, connect=connect_timeout_s),
                trust_env=not direct,
                event_hooks={"response": [_mark_answered]},
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise EmbedderUnavailable(
                f"{host!r} is not a valid address of Ollama: {error}", hint="set OLLAMA_HOST to http://HOST:PORT"
            ) from error

    @property
    def model_id(self) -> str:
        """The model's name at Ollama."""
        return self._model

    @property
    def dim(self) -> int | None:
        """Dimensions; None before the first answer."""
        return self._dim

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order, in requests of at most 64 texts.

        Raises:
            EmbedderUnavailable: Refused, timed out, or 5xx.
            EmbedderModelMissing: The model is not pulled, or does not embed.
            EmbedderBadAnswer: The answer does not hold the requested vectors.
            EmbedderInputRejected: The server refuses an input of the batch.
        """
        vectors: list[bytes] = []
        for start in range(0, len(texts), EMBED_BATCH):
            batch = texts[start : start + EMBED_BATCH]
            vectors += await self._embed(
                [cap_bytes(self._prefixes.document + text, EMBED_INPUT_BYTES) for text in batch]
            )
        return vectors

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query. Errors as in `embed_documents`."""
        return (await self._embed([cap_bytes(self._prefixes.query + text, EMBED_INPUT_BYTES)]))[0]

    async def probe(self) -> None:
        """Embed a sentence. Errors as in `embed_documents`."""
        await self.embed_query(PROBE_TEXT)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the package's only unannotated method

    async def _embed(self, inputs: list[str]) -> list[bytes]:
        limit = self._timeout_s + (len(inputs) - 1) * EXTRA_TEXT_TIMEOUT_S
        try:
            async with asyncio.timeout(limit):
                answer = await self._client.embed(model=self._model, input=inputs, truncate=True)
        except ResponseError as error:
            self._raise_for_status(error)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EmbedderUnavailable(
                f"Ollama at {self._host} did not answer within {limit:g} s",
                hint="check whether it is busy or still loading the model (`ollama ps`)",
            ) from error
        except (ValidationError, JSONDecodeError, UnicodeDecodeError, httpx.DecodingError) as error:
            raise EmbedderBadAnswer(
                f"the answer of Ollama at {self._host} is not a valid answer of /api/embed",
                hint="check whether the address is that of Ollama",
            ) from error
        except httpx.RequestError as error:
            if error.request.extensions.get(_ANSWERED):
                raise EmbedderBadAnswer(
                    f"Ollama at {self._host} closed the connection before the end of its answer"
                ) from error
            raise self._unreachable(error) from error
        except (OSError, httpx.InvalidURL) as error:  # includes the client's own ConnectionError
            raise self._unreachable(error) from error
        return self._checked(answer.embeddings, len(inputs))

    def _unreachable(self, error: Exception) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"Ollama at {self._host} cannot be reached ({type(error).__name__})",
            hint="start it with `ollama serve`, or set OLLAMA_HOST",
        )

    def _raise_for_status(self, error: ResponseError) -> NoReturn:
        status, text = error.status_code, str(error.error)[:SHOWN_CHARS]
        if status == NOT_FOUND or any(marker in text for marker in NO_MODEL_MARKERS):
            hint = f"run `ollama pull {self._model}`"
            if status != NOT_FOUND:
                hint = f"choose an embedding model, such as {OLLAMA_DEFAULT_MODEL}"
            raise EmbedderModelMissing(
                f"Ollama at {self._host} has no embedding model {self._model}: {text}", hint=hint
            )
        if NO_NUMBER_MARKER in text:
            raise EmbedderBadAnswer(f"{self._model} computed NaN or infinite values")
        if status in INPUT_STATUSES or any(marker in text for marker in TOO_LONG_MARKERS):
            raise EmbedderInputRejected(f"{self._model} refuses this input ({status}): {text}")
        raise EmbedderUnavailable(
            f"Ollama at {self._host} answered {status}: {text}",
            hint="read the log of `ollama serve`, and check whether the address is that of Ollama",
        )

    def _checked(self, embeddings: Sequence[Sequence[float]], count: int) -> list[bytes]:
        if len(embeddings) != count:
            raise EmbedderBadAnswer(f"{self._model} gave {len(embeddings)} vectors for {count} texts")
        dims = {len(vector) for vector in embeddings}
        expected = self._dim if self._dim is not None else len(embeddings[0])
        if dims != {expected} or not expected:
            raise EmbedderBadAnswer(
                f"{self._model} gave vectors of {sorted(dims)} dimensions, not {expected or 'any'}",
                hint="the name may now stand for another model: pull the former one, or activate the new one",
            )
        rows = np.array(embeddings, dtype=np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not (norms > 0.0).all():
            raise EmbedderBadAnswer(f"{self._model} gave a vector that is zero or not finite")
        self._dim = expected
        return [row.tobytes() for row in (rows / norms).astype(FLOAT32_LE)]


_ANSWERED: Final = "crew_journal.answered"


async def _mark_answered(response: httpx.Response) -> None:
    """Mark a request whose answer has begun, to recognise a connection that breaks in the middle of it."""
    response.request.extensions[_ANSWERED] = True
