"""The Ollama embedder: turns every way a model server can fail into the error that says whose fault it is.

Invariant: a vector that leaves here is one of as many as were asked for, has the dimension of all before it, is
finite, non-zero and L2-normalised. Nothing else leaves but an `EmbedderError` or the caller's own cancellation.
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
from .fast_json import JsonTransport
from .loopback import is_loopback

CONNECT_TIMEOUT_S: Final = 5.0
"""An Ollama that is there accepts at once, but our own event loop may be busy for a second; one that is not there holds up
neither a start nor a recall, which have shorter bounds of their own."""
EXTRA_TEXT_TIMEOUT_S: Final = 2.0
"""Added to the time-out for each text of a batch after the first: 4,096 bytes are some 1,000 tokens, which a laptop's
CPU embeds in one to two seconds. A full batch of 64 may so take 141 s."""
PROBE_TEXT: Final = "Is the embedder there?"
FLOAT32_LE: Final = np.dtype("<f4")
NOT_FOUND: Final = 404
INPUT_STATUSES: Final = frozenset({400, 413, 422})
"""Answers about what was sent. Every other one from 400 on is about access, load, or not being Ollama."""
NO_MODEL_MARKERS: Final = ("does not support embed", "invalid model")
"""Ollama's words for a model that only generates, and for a name that cannot be one."""
NO_NUMBER_MARKER: Final = "unsupported value: NaN"
"""How Ollama's own JSON encoder fails, with a 500, when the model computed NaN."""
TOO_LONG_MARKERS: Final = ("exceeds the context length", "exceeds maximum context length")
"""Some versions say this of an input with a 500."""
SHOWN_CHARS: Final = 200
"""Of a server's error text, enough to recognise it."""


@dataclass(frozen=True, slots=True)
class TaskPrefixes:
    """What a model wants in front of its input; Ollama adds nothing by itself."""

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
"""By model name without namespace and tag, from the models' own cards. Other models get no prefix."""


def prefixes_of(model: str) -> TaskPrefixes:
    """The prefixes of a model, whatever its namespace and tag (``library/nomic-embed-text:v1.5``)."""
    name = model.rpartition("/")[2].partition(":")[0]
    return PREFIXES.get(name, TaskPrefixes())


class OllamaEmbedder:
    """An `Embedder` (see `schemas.ports`) on Ollama's batched ``/api/embed``.

    Opens no connection until the first call.

    Args:
        host: URL or HOST[:PORT] of the server; the caller decides, the environment is not read.
        model: The model's name as Ollama lists it.
        timeout_s: Time for one text, in seconds. A batch of n texts has ``timeout_s + (n - 1) ·
            EXTRA_TEXT_TIMEOUT_S``.
        connect_timeout_s: Time for the connection alone, in seconds.
        dim: The dimension that vectors of this model had before; None to take it from the first answer.

    Raises:
        EmbedderUnavailable: `host` cannot be read as an address.
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
            direct = is_loopback(host)  # a proxy from the environment cannot reach our loopback
            self._client = AsyncClient(
                host,
                timeout=httpx.Timeout(None, connect=connect_timeout_s),
                trust_env=not direct,
                transport=JsonTransport(trust_env=False) if direct else None,  # one of our own knows no proxies
                event_hooks={"response": [_mark_answered]},
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise EmbedderUnavailable(
                f"{host!r} is not the address of an Ollama: {error}", hint="set OLLAMA_HOST to http://HOST:PORT"
            ) from error

    @property
    def model_id(self) -> str:
        """The model's name at Ollama."""
        return self._model

    @property
    def dim(self) -> int | None:
        """Dimensions, once an answer has shown them."""
        return self._dim

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order, in requests of at most 64 texts.

        Raises:
            EmbedderUnavailable: Refused, timed out, or 5xx.
            EmbedderModelMissing: The model is not pulled, or does not embed.
            EmbedderBadAnswer: An answer that is not the vectors asked for.
            EmbedderInputRejected: The server refuses an input; in a batch it does not say which one.
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
                hint="see whether it is busy or still loading the model (`ollama ps`)",
            ) from error
        except (ValidationError, JSONDecodeError, UnicodeDecodeError, httpx.DecodingError) as error:
            raise EmbedderBadAnswer(
                f"the answer of Ollama at {self._host} is not what /api/embed should give",
                hint="see whether the address is Ollama's",
            ) from error
        except httpx.RequestError as error:
            if error.request.extensions.get(_ANSWERED):
                raise EmbedderBadAnswer(f"Ollama at {self._host} broke off in the middle of its answer") from error
            raise self._unreachable(error) from error
        except (OSError, httpx.InvalidURL) as error:  # the client's own ConnectionError among them
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
                hint = f"choose a model that embeds, such as {OLLAMA_DEFAULT_MODEL}"
            raise EmbedderModelMissing(
                f"Ollama at {self._host} has no embedding model {self._model}: {text}", hint=hint
            )
        if NO_NUMBER_MARKER in text:
            raise EmbedderBadAnswer(f"{self._model} computed values that are no numbers")
        if status in INPUT_STATUSES or any(marker in text for marker in TOO_LONG_MARKERS):
            raise EmbedderInputRejected(f"{self._model} refuses this input ({status}): {text}")
        raise EmbedderUnavailable(
            f"Ollama at {self._host} answered {status}: {text}",
            hint="see the log of `ollama serve`, and whether the address is Ollama's",
        )

    def _checked(self, embeddings: Sequence[Sequence[float]], count: int) -> list[bytes]:
        if len(embeddings) != count:
            raise EmbedderBadAnswer(f"{self._model} gave {len(embeddings)} vectors for {count} texts")
        dims = {len(vector) for vector in embeddings}
        expected = self._dim if self._dim is not None else len(embeddings[0])
        if dims != {expected} or not expected:
            raise EmbedderBadAnswer(
                f"{self._model} gave vectors of {sorted(dims)} dimensions, not {expected or 'any'}",
                hint="another model of the same name? pull the former one, or switch models explicitly",
            )
        rows = np.array(embeddings, dtype=np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not (norms > 0.0).all():
            raise EmbedderBadAnswer(f"{self._model} gave a vector that is zero or no number")
        self._dim = expected
        return [row.tobytes() for row in (rows / norms).astype(FLOAT32_LE)]


_ANSWERED: Final = "crew_journal.answered"


async def _mark_answered(response: httpx.Response) -> None:
    """Remember that headers came: a connection that breaks after them broke in the middle of an answer."""
    response.request.extensions[_ANSWERED] = True
