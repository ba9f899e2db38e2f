"""The Ollama embedder.

Invariant: every failure of the server is an `EmbedderError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from json import JSONDecodeError
from typing import Final, NoReturn

import httpx
from ollama import AsyncClient, ResponseError
from pydantic import ValidationError

from ...schemas.core.errors import EmbedderBadAnswer, EmbedderInputRejected, EmbedderModelMissing, EmbedderUnavailable
from ...schemas.settings import EMBED_TIMEOUT_S, OLLAMA_DEFAULT_MODEL
from .served import CONNECT_TIMEOUT_S, INPUT_STATUSES, NOT_FOUND, SHOWN_CHARS, ServedEmbedder, is_loopback

NO_MODEL_MARKERS: Final = ("does not support embed", "invalid model")
"""Texts of Ollama's errors for a model that cannot embed and for an invalid name."""
NO_NUMBER_MARKER: Final = "unsupported value: NaN"
"""Text of the error 500 of Ollama's JSON encoder when the model computed NaN."""
TOO_LONG_MARKERS: Final = ("exceeds the context length", "exceeds maximum context length")
"""Texts with which some versions refuse an input, with status 500."""


class OllamaEmbedder(ServedEmbedder):
    """An embedder on Ollama's batched ``/api/embed``.

    Args:
        host: URL or HOST[:PORT] of the server; the environment is not read.
        model: The model's name as Ollama lists it.
        timeout_s: As for ``ServedEmbedder``.
        dim: As for ``ServedEmbedder``.

    Raises:
        EmbedderUnavailable: `host` is not a valid address.
    """

    def __init__(
        self,
        host: str,
        model: str = OLLAMA_DEFAULT_MODEL,
        *,
        timeout_s: float = EMBED_TIMEOUT_S,
        dim: int | None = None,
    ) -> None:
        super().__init__(model, model, timeout_s=timeout_s, dim=dim)
        self._host = host
        try:
            direct = is_loopback(host)  # a proxy from the environment cannot reach the loopback interface
            self._client = AsyncClient(
                host,
                timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
                trust_env=not direct,
                event_hooks={"response": [_mark_answered]},
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise EmbedderUnavailable(
                f"{host!r} is not a valid address of Ollama: {error}", hint="set OLLAMA_HOST to http://HOST:PORT"
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the package's only unannotated method

    async def _request(self, inputs: list[str], limit_s: float) -> Sequence[Sequence[float]]:
        try:
            async with asyncio.timeout(limit_s):
                return (await self._client.embed(model=self._model, input=inputs, truncate=True)).embeddings
        except ResponseError as error:
            self._raise_for_status(error)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EmbedderUnavailable(
                f"Ollama at {self._host} did not answer within {limit_s:g} s",
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


_ANSWERED: Final = "crew_journal.answered"


async def _mark_answered(response: httpx.Response) -> None:
    """Mark a request whose answer has begun, to recognise a connection that breaks in the middle of it."""
    response.request.extensions[_ANSWERED] = True
