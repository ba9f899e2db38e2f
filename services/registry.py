"""The registrations of agents and crews, in memory, because every read and write of memory needs them.

Invariant: the last registration counts, from the commit on that folded it. The first read loads the table, then commits are
followed; after a swap of the views file, it is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from ..schemas.access.tables import AGENTS, AGENTS_PROJECTION, CREWS, AgentRow, CrewRow
from ..schemas.core.ports import CommittedBatch, ViewReader
from ..schemas.core.table import PRESENT, Table

_R = TypeVar("_R", AgentRow, CrewRow)
_READ: Final = {table: f"SELECT {table.names} FROM {table} WHERE {PRESENT}" for table in (AGENTS, CREWS)}


class Registry:
    """Agents and crews of all workspaces.

    Args:
        views: The registrations as folded; subscribed to at once.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._agents: dict[tuple[str, str], AgentRow] = {}
        self._crews: dict[tuple[str, str], CrewRow] = {}
        self._generation: int | None = None
        self._loading = asyncio.Lock()
        self._unsubscribe: Callable[[], None] = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()

    async def agent(self, workspace_id: str, agent_id: str) -> AgentRow | None:
        """The registration of an agent, or None."""
        await self._load()
        return self._agents.get((workspace_id, agent_id))

    async def agents(self, workspace_id: str, crew_id: str | None = None) -> list[AgentRow]:
        """The registered agents of a workspace, or of one of its crews, by id."""
        await self._load()
        rows = [row for (where, _), row in self._agents.items() if where == workspace_id]
        return sorted((row for row in rows if crew_id in (None, row.crew_id)), key=lambda row: row.agent_id)

    async def crew(self, workspace_id: str, crew_id: str) -> CrewRow | None:
        """The registration of a crew, or None."""
        await self._load()
        return self._crews.get((workspace_id, crew_id))

    async def crews(self, workspace_id: str) -> list[CrewRow]:
        """The registered crews of a workspace, by id."""
        await self._load()
        return sorted(
            (row for (where, _), row in self._crews.items() if where == workspace_id), key=lambda r: r.crew_id
        )

    @property
    def view_seq(self) -> int:
        """The sequence up to which registrations are folded."""
        return self._views.view_seq(AGENTS_PROJECTION)

    async def _load(self) -> None:
        if self._views.generation == self._generation:
            return
        async with self._loading:
            if (generation := self._views.generation) != self._generation:
                self._agents, self._crews = {}, {}  # later commits are added to the rows that are read
                agents, crews = await asyncio.to_thread(self._read)
                _keep(self._agents, agents)
                _keep(self._crews, crews)
                self._generation = generation

    def _read(self) -> tuple[list[AgentRow], list[CrewRow]]:
        rows = {table: self._views.rows(sql) for table, sql in _READ.items()}
        return [AgentRow(*row) for row in rows[AGENTS]], [CrewRow(*row) for row in rows[CREWS]]

    def _follow(self, batch: CommittedBatch) -> None:
        _keep(self._agents, _written(batch, AGENTS, AgentRow))
        _keep(self._crews, _written(batch, CREWS, CrewRow))


def _written(batch: CommittedBatch, table: Table[Any], row: type[_R]) -> Iterable[_R]:
    """The rows of a table that a commit wrote and that count."""
    changes = batch.changes.get(table.name)
    return (row for row in changes.rows(row) if row.until_seq is None) if changes is not None else ()


def _keep(known: dict[tuple[str, str], _R], rows: Iterable[_R]) -> None:
    for row in rows:
        key = row[0], row[1]
        if key not in known or known[key].since_seq <= row.since_seq:
            known[key] = row
