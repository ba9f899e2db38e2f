"""The embedder behind ``/v1/embeddings`` of OpenAI and compatible servers.

Invariant: every failure is an `EmbedderError`, and none shows the key. A server that asks to wait (``Retry-After``) gets no
request until then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from ...schemas.core.errors import EmbedderBadAnswer, EmbedderInputRejected, EmbedderModelMissing, EmbedderUnavailable
from ...schemas.settings import EMBED_TIMEOUT_S
from .served import (
    INPUT_STATUSES,
    NOT_FOUND,
    OK,
    OPENAI_PREFIX,
    AnswerTooLong,
    BrokenOff,
    Endpoint,
    JsonServer,
    Naming,
    Reply,
    ServedEmbedder,
)

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
