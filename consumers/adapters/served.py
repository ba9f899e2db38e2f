"""Base of embedders behind a server: builds requests and checks answers.

Invariant: an answer has one vector per text, of constant dimension, finite, non-zero and L2-normalised.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, urlsplit

import numpy as np

from ...schemas.core.errors import (
    CrewJournalError,
    EmbedderBadAnswer,
    EmbedderInputRejected,
    EmbedderModelMissing,
    EmbedderUnavailable,
)
from ...schemas.models.rules import cap_bytes
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES, EMBED_TIMEOUT_S

EXTRA_TEXT_TIMEOUT_S: Final = 2.0
"""Seconds added to the time limit for each further text of a batch: a laptop's CPU embeds 4,096 bytes in one to two
seconds. A full batch of 64 may take 141 s.
"""
PROBE_TEXT: Final = "Is the embedder there?"
FLOAT32_LE: Final = np.dtype("<f4")
OPENAI_PREFIX: Final = "openai/"
"""Prefix of the names of the OpenAI-compatible server's models, which distinguishes them from Ollama's models."""


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
    """An `Embedder` (see `schemas.core.ports`) behind a server; connects at the first call.

    Args:
        model_id: Name of the model in the journal.
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


# Whether a model server runs on this machine, and whether its port is open.


def is_loopback(host: str) -> bool:
    """Whether a server's address is on this machine, which no proxy can reach."""
    name = _split(host).hostname or "localhost"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or address.is_unspecified


async def is_closed(host: str) -> bool:
    """Whether the port of a server on this machine refuses connections; False if uncertain."""
    try:
        where = _split(host)
        if where.port is None or not is_loopback(host):
            return False
        _, writer = await asyncio.open_connection(where.hostname, where.port)
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):  # ValueError: not an address
        return False
    writer.close()
    return False


async def listens(host: str, within_s: float = 1.0) -> bool:
    """Whether a server accepts connections at an address, possibly of another machine."""
    try:
        where = _split(host)
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(where.hostname, where.port)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True


def _split(host: str) -> SplitResult:
    return urlsplit(host if "://" in host else f"http://{host}")


# Sends JSON to one URL of a model server.


CONNECT_TIMEOUT_S: Final = 5.0
"""Seconds to connect; our event loop may be busy for one second. Starts and recalls have shorter limits of their own."""
SHOWN_CHARS: Final = 200
"""Maximum characters of a server's error text."""
OK: Final = 200
NOT_FOUND: Final = 404
REFUSED: Final = frozenset({401, 403})
"""Status codes that concern the key."""
INPUT_STATUSES: Final = frozenset({400, 413, 422})
"""Status codes that concern the input. All others from 400 on concern access, load or another kind of server."""


class AnswerTooLong(Exception):
    """The answer exceeds the limit of bytes."""


class BrokenOff(Exception):
    """The connection ended within the answer."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The words of a server's errors.

    Attributes:
        server: Name of the server.
        setting: The variable that names it, and an example: ``OLLAMA_HOST to http://HOST:PORT``.
        key: The variable of its key.
        unavailable: The error class for an unavailable server.
    """

    server: str
    setting: str
    key: str
    unavailable: type[CrewJournalError]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class JsonServer:
    """Connects at the first request; imports httpx when it is made, because most nodes have no such server.

    Args:
        base_url: URL of the server; without a scheme, HTTP.
        path_of: Converts the path of the base URL (without a slash at its end) to the path of requests.
        naming: The words of errors.
        api_key: Sent as a bearer token; None for none.
        max_bytes: Most bytes of an answer.

    Raises:
        CrewJournalError: ``base_url`` is not a valid URL; ``naming`` has the class of the error.
    """

    def __init__(
        self, base_url: str, path_of: Callable[[str], str], naming: Naming, *, api_key: str | None, max_bytes: int
    ) -> None:
        import httpx

        self.where = base_url if "://" in base_url else f"http://{base_url}"
        self._naming = naming
        self._key = api_key
        self._max_bytes = max_bytes
        try:
            urlsplit(self.where).port  # noqa: B018 - raises on an invalid port, which httpx does not notice
            base = httpx.URL(self.where)
        except (ValueError, httpx.InvalidURL) as error:
            raise naming.unavailable(f"{base_url!r} is not a valid URL", hint=f"set {naming.setting}") from error
        self._url = base.copy_with(path=path_of(base.path.rstrip("/")))
        local = is_loopback(self.where)  # a proxy from the environment cannot reach the loopback interface
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            trust_env=not local,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        )

    async def post(self, body: dict[str, Any], limit_s: float) -> Reply:
        """Send one request.

        Raises:
            AnswerTooLong: The answer is longer than ``max_bytes``.
            BrokenOff: The connection ended within the answer.
            CrewJournalError: The server cannot be reached, or did not answer within ``limit_s`` seconds; ``naming`` has
                the class of the error.
        """
        import httpx

        naming = self._naming
        try:
            async with asyncio.timeout(limit_s):
                return await self._post(body)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise naming.unavailable(
                f"{naming.server} at {self.where} did not answer within {limit_s:g} s",
                hint="check whether it is busy or still loading the model",
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise naming.unavailable(
                f"{naming.server} at {self.where} cannot be reached ({type(error).__name__})",
                hint=f"start it, or set {naming.setting}",
            ) from error

    def fault(self, reply: Reply, model: str) -> tuple[str, str]:
        """The message and the hint of an error for a reply with a status other than 200."""
        text = reply.content.decode("utf-8", "replace")
        text = (text.replace(self._key, "…") if self._key else text)[:SHOWN_CHARS]
        hint = "read the server's log, and check the URL"
        if reply.status == NOT_FOUND:
            hint = f"check the URL, and whether the server has {model}"
        elif reply.status in REFUSED:
            hint = f"set {self._naming.key} to a key that may use this model"
        return f"{self._naming.server} at {self.where} answered {reply.status}: {text}", hint

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, body: dict[str, Any]) -> Reply:
        import httpx

        async with self._client.stream("POST", self._url, json=body) as response:
            read = bytearray()
            try:
                async for chunk in response.aiter_bytes():
                    read += chunk
                    if len(read) > self._max_bytes:
                        raise AnswerTooLong
            except httpx.RequestError as error:
                raise BrokenOff(str(error)) from error
            return Reply(response.status_code, response.headers, bytes(read))


# The embedder behind ``/v1/embeddings`` of OpenAI and compatible servers.
#
# Invariant: every failure is an `EmbedderError`, and none shows the key. A server that asks to wait (``Retry-After``)
# gets no request until then.


MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of an answer; 64 vectors of 4,096 numbers have about 6 MB."""
LONGEST_WAIT_S: Final = 60.0
"""Maximum seconds of ``Retry-After`` that are respected; the reactors' own pauses are equally long."""
_NAMING: Final = Naming(
    "the server",
    "CREW_JOURNAL_EMBED_BASE_URL to a URL such as https://api.openai.com/v1",
    "CREW_JOURNAL_EMBED_API_KEY",
    EmbedderUnavailable,
)


class OpenAiEmbedder(ServedEmbedder):
    """An embedder on ``POST /embeddings``; a URL without a path gets ``/v1``.

    Args:
        endpoint: The server.
        model: The model's name at the server.
        timeout_s: As for ``ServedEmbedder``.
        dim: As for ``ServedEmbedder``.

    Raises:
        EmbedderUnavailable: The URL is not valid.
    """

    def __init__(
        self, endpoint: Endpoint, model: str, *, timeout_s: float = EMBED_TIMEOUT_S, dim: int | None = None
    ) -> None:
        super().__init__(f"{OPENAI_PREFIX}{model}", model, timeout_s=timeout_s, dim=dim)
        self._http: JsonServer | None = None
        self._not_before_s = 0.0
        if endpoint.url is not None:
            self._http = JsonServer(endpoint.url, _path, _NAMING, api_key=endpoint.key, max_bytes=MAX_ANSWER_BYTES)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _request(self, inputs: list[str], limit_s: float) -> Sequence[Sequence[float]]:
        http = self._http
        if http is None:
            raise EmbedderUnavailable(f"no server is set for {self.model_id}", hint=f"set {_NAMING.setting}")
        if (left_s := self._not_before_s - asyncio.get_running_loop().time()) > 0:
            raise EmbedderUnavailable(
                f"the server at {http.where} asks to wait for {left_s:.0f} s more", hint="check the limits of your key"
            )
        texts = [text or " " for text in inputs]  # OpenAI refuses an empty text
        try:
            reply = await http.post({"model": self._model, "input": texts, "encoding_format": "float"}, limit_s)
        except (BrokenOff, AnswerTooLong) as error:
            raise EmbedderBadAnswer(f"the server at {http.where} did not send a whole answer") from error
        if reply.status != OK:
            self._raise_for_status(http, reply)
        try:
            return _in_order(json.loads(reply.content)["data"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EmbedderBadAnswer(
                f"the answer of {http.where} is not a valid answer of /embeddings", hint="check the URL"
            ) from error

    def _raise_for_status(self, http: JsonServer, reply: Reply) -> NoReturn:
        problem, hint = http.fault(reply, self._model)
        if reply.status in INPUT_STATUSES:
            raise EmbedderInputRejected(problem)
        if reply.status == NOT_FOUND:
            raise EmbedderModelMissing(problem, hint=hint)
        if (wait_s := _seconds(reply.headers.get("retry-after", ""))) > 0:
            self._not_before_s = asyncio.get_running_loop().time() + min(wait_s, LONGEST_WAIT_S)
            hint = "check the limits of your key"
        raise EmbedderUnavailable(problem, hint=hint)


def _path(base: str) -> str:
    return f"{base or '/v1'}/embeddings"


def _in_order(data: list[dict[str, Any]]) -> list[list[float]]:
    """The vectors by their ``index``.

    Raises:
        ValueError: An index is missing or repeated, or a vector contains something other than numbers.
    """
    vectors = {item["index"]: item["embedding"] for item in data}
    if sorted(vectors) != list(range(len(data))):
        raise ValueError("the indexes are not 0 to n - 1")
    if any(type(number) not in (float, int) for vector in vectors.values() for number in vector):
        raise ValueError("not numbers")
    return [vectors[at] for at in range(len(data))]


def _seconds(retry_after: str) -> float:
    """Seconds of a ``Retry-After``; 0 if it is a date or absent."""
    return float(retry_after) if retry_after.strip().isdecimal() else 0.0
