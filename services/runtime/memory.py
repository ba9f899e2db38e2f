"""The node's memory use-cases: what they share, when they start, and what they say of themselves.

Invariant: what is started here is stopped by the node's stack, before the journal they record in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...schemas.ports import ViewReader
from ...schemas.settings import Settings
from ..journal.intake.append import Journal
from ..memory.agents import Agents
from ..memory.nudges import NudgeService
from ..memory.priorities import Priorities
from ..memory.references import ReferenceLog
from ..memory.reindex import Reindexing
from ..memory.relations import Relations
from ..memory.retractions import Retractions
from ..memory.search_log import SearchLog
from ..memory.sweep_now import SweepNow
from ..memory.sweeps import Sweeps
from ..memory.workspace_settings import WorkspaceSettingsService
from ..operating.status import as_json
from ..query.entries.queries import JournalQueries
from ..query.recall import Observer


@dataclass(frozen=True, slots=True)
class Memory:
    """The use-cases of one node; ``search_log`` is None where recalls are not logged."""

    references: ReferenceLog
    priorities: Priorities
    timekeeper: Sweeps
    sweep_now: SweepNow
    search_log: SearchLog | None
    relations: Relations
    retractions: Retractions
    agents: Agents
    reindexing: Reindexing
    nudges: NudgeService
    workspace_settings: WorkspaceSettingsService

    @property
    def observers(self) -> list[Observer]:
        """Called with every recall."""
        logs = [] if self.search_log is None else [self.search_log.observe]
        return [self.references.observe, *logs]

    def figures(self, workspace_id: str | None, node: bool) -> dict[str, Any]:
        """What ``status`` shows: the sweeps of a workspace (of all if None), and the node's logs if ``node``; blocking."""
        shown: dict[str, Any] = self.timekeeper.figures(workspace_id, reasons=node)
        if node:
            shown["references"] = as_json(self.references.figures())
            shown["search_log"] = None if self.search_log is None else as_json(self.search_log.figures())
        return shown


async def start_memory(
    stack: AsyncExitStack,
    journal: Journal,
    queries: JournalQueries,
    views: ViewReader,
    settings: Settings,
    clock: Callable[[], datetime],
) -> Memory:
    """Make and start them; ``timekeeper`` is started by the node, once everything that follows a tick is up."""
    references = ReferenceLog(journal, clock=clock)
    await references.start()
    stack.push_async_callback(references.stop)
    search_log = None
    if settings.query_log:
        search_log = SearchLog(journal, clock=clock)
        await search_log.start()
        stack.push_async_callback(search_log.stop)
    timekeeper = Sweeps(journal, views, clock=clock)
    stack.push_async_callback(timekeeper.stop)
    return Memory(
        references=references,
        priorities=Priorities(journal, views),
        timekeeper=timekeeper,
        sweep_now=SweepNow(journal, views, clock=clock, catch_up=timekeeper.catch_up),
        search_log=search_log,
        relations=Relations(views, queries, journal),
        retractions=Retractions(views, queries, journal),
        agents=Agents(views, journal),
        reindexing=Reindexing(journal, views, clock=clock),
        nudges=NudgeService(views, journal, clock=clock),
        workspace_settings=WorkspaceSettingsService(views, journal),
    )
