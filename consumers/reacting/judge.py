"""Asks a chat model to judge borderline contradictions, if one is configured.

Invariant: without an answer, the rule's confidence counts. After a failure it pauses, so that an unavailable model does
not slow the link reactor.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from ...schemas.chat import ChatBadAnswer, ChatError
from ..prompts.contradiction import Verdict, question
from .llm_calls import MeteredChat

PAUSE_S: Final = 30.0
"""Seconds without calls after a failure."""
_log = structlog.get_logger(__name__)


class Judge(Protocol):
    """Judges whether two texts contradict each other."""

    async def contradicts(self, workspace_id: str, newer: str, older: str) -> bool | None:
        """The verdict, or None."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class ChatJudge:
    """A ``Judge`` on a chat model.

    Args:
        chat: The model; closed here.
        pause_s: Seconds without calls after a failure.
    """

    def __init__(self, chat: MeteredChat, *, pause_s: float = PAUSE_S) -> None:
        self._chat = chat
        self._pause_s = pause_s
        self._resumes_at = 0.0

    async def contradicts(self, workspace_id: str, newer: str, older: str) -> bool | None:
        """The model's verdict; None if it is unavailable or too slow, or the answer is not a verdict.

        Raises:
            BrokerUnavailable: The cost could not be recorded.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._resumes_at:
            return None
        try:
            done = await self._chat.complete(workspace_id, "judge", question(newer, older), Verdict)
        except ChatBadAnswer:
            return None
        except ChatError as error:
            self._resumes_at = loop.time() + self._pause_s
            _log.warning("judge.failed", model=self._chat.model_id, error=type(error).__name__)
            return None
        return done.contradicts

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()
