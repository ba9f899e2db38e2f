"""Asks a chat model of Ollama to judge borderline contradictions, if one is configured.

Invariant: it never raises and never exceeds its time limit; without an answer, the rule's confidence counts. After a
failure it pauses, so that an unavailable model does not slow the link reactor.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import httpx
import structlog
from ollama import AsyncClient, ResponseError
from pydantic import ValidationError

from ...schemas.errors import Unavailable
from ...schemas.settings import JUDGE_TIMEOUT_S
from ..prompts.contradiction import SYSTEM, Verdict, question, verdict_of
from .loopback import is_loopback

PAUSE_S: Final = 30.0
"""Seconds without calls after a failure."""
MAX_TOKENS: Final = 32
"""Most tokens of an answer; a verdict needs about eight."""
_log = structlog.get_logger(__name__)


class Judge(Protocol):
    """Judges whether two texts contradict each other."""

    async def contradicts(self, newer: str, older: str) -> bool | None:
        """The verdict, or None."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class OllamaJudge:
    """A ``Judge`` on Ollama's ``/api/chat``; connects at the first call.

    Args:
        host: URL or HOST[:PORT] of the server.
        model: The chat model's name as Ollama lists it.
        timeout_s: Seconds for a verdict.
        pause_s: Seconds without calls after a failure.

    Raises:
        Unavailable: `host` is not a valid address.
    """

    def __init__(self, host: str, model: str, *, timeout_s: float = JUDGE_TIMEOUT_S, pause_s: float = PAUSE_S) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._resumes_at = 0.0
        try:
            self._client = AsyncClient(host, timeout=timeout_s, trust_env=not is_loopback(host))
        except (ValueError, httpx.InvalidURL) as error:
            raise Unavailable(
                f"{host!r} is not a valid address of Ollama: {error}", hint="set OLLAMA_HOST to http://HOST:PORT"
            ) from error

    async def contradicts(self, newer: str, older: str) -> bool | None:
        """The model's verdict; None if it is unavailable or too slow, or the answer is not a verdict."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._resumes_at:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._client.chat(
                    model=self._model,
                    messages=[
                        {"role": "system", "content": SYSTEM},
                        {"role": "user", "content": question(newer, older)},
                    ],
                    format=Verdict.model_json_schema(),
                    options={"temperature": 0.0, "seed": 0, "num_predict": MAX_TOKENS},
                )
        except (ResponseError, httpx.HTTPError, httpx.InvalidURL, ValidationError, ValueError, OSError) as error:
            self._resumes_at = loop.time() + self._pause_s
            _log.warning("judge.failed", model=self._model, error=type(error).__name__)
            return None
        return verdict_of(answer.message.content or "")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the package's only unannotated method
