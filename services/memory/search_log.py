"""Logs recalls as ``memory.searched``, to compare models on and to judge how well recall works.

Invariant: a recall never waits for it and never fails by it: at most one a second and workspace is kept, in a bounded
queue; what does not fit, or cannot be published, is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from ...schemas.errors import CrewJournalError
from ...schemas.events.memory import MemorySearched
from ..endings import end_task
from ..journal.intake.recorder import Recorder
from ..query.recall import Answered

EVERY_S: Final = 1.0
"""Seconds between two logged recalls of a workspace: a busy one writes 86,400 a day at most, about 40 MB."""
MOST_HITS: Final = 100
"""Hits that ``memory.searched`` may name."""
QUEUE: Final = 256
"""Recalls that wait to be published, about 1 MB; the broker's ack takes milliseconds."""
WORKSPACES: Final = 10_000
"""Workspaces whose last logged recall is remembered; beyond it all are forgotten, which logs one more of each."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SearchLogFigures:
    """What ``status`` shows: recalls logged and dropped since start, and why the last could not be published."""

    logged: int
    dropped: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Search:
    workspace_id: str
    crew_id: str | None
    agent_id: str | None
    payload: MemorySearched


class SearchLog:
    """Logs recalls; used on the event loop.

    Args:
        journal: Records them.
        clock: The time now, UTC.
    """

    def __init__(self, journal: Recorder, *, clock: Callable[[], datetime]) -> None:
        self._journal = journal
        self._clock = clock
        self._last: dict[str, datetime] = {}
        self._queue: asyncio.Queue[_Search] = asyncio.Queue(QUEUE)
        self._task: asyncio.Task[None] | None = None
        self._logged = 0
        self._dropped = 0
        self._error: str | None = None

    async def start(self) -> None:
        """Publish in the background."""
        self._task = asyncio.create_task(self._run(), name="search-log")

    async def stop(self) -> None:
        """End; what is still queued is not worth waiting for."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    def figures(self) -> SearchLogFigures:
        """How it is doing."""
        return SearchLogFigures(self._logged, self._dropped, self._error)

    def observe(self, answered: Answered) -> None:
        """Log an answered recall, if its workspace's turn has come."""
        now = self._clock()
        last = self._last.get(answered.workspace_id)
        if last is not None and timedelta(0) <= now - last < timedelta(seconds=EVERY_S):
            return  # a clock that was set back must not end the log until it has caught up with itself
        if len(self._last) >= WORKSPACES:
            self._last.clear()
        self._last[answered.workspace_id] = now
        try:
            self._queue.put_nowait(_search_of(answered))
        except asyncio.QueueFull:
            self._dropped += 1

    async def _run(self) -> None:
        while True:
            search = await self._queue.get()
            try:
                await self._journal.record(
                    search.workspace_id,
                    search.payload,
                    summary=f"Recalled {len(search.payload.hit_ids)} memories",
                    crew_id=search.crew_id,
                    agent_id=search.agent_id,
                )
                self._logged += 1
                self._error = None
            except CrewJournalError as error:
                self._dropped += 1
                self._error = error.message
            except Exception:
                self._dropped += 1
                _log.exception("search_log_failed", workspace_id=search.workspace_id)


def _search_of(answered: Answered) -> _Search:
    """What is recorded: the payload names whose memories were searched, the entry who asked.

    An entry is shown to the agent and the crew it bears, and what an OWNER asks about an agent is not for that agent.
    """
    asker, scope, response, mean = answered.principal, answered.scope, answered.response, answered.mean_cosine
    payload = MemorySearched(
        query=answered.request.query,
        scope=scope.kind.value,
        crew_id=scope.crew_id or asker.crew_id,
        agent_id=scope.agent_id or asker.agent_id,
        recipe=response.recipe,
        model=response.model,
        hit_ids=tuple(hit.entry_id for hit in response.hits)[:MOST_HITS],
        mean_cosine=None if mean is None else max(-1.0, min(1.0, mean)),  # a cosine in float32 may lie beyond 1
    )
    return _Search(answered.workspace_id, asker.crew_id, asker.agent_id, payload)
