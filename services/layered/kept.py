"""Values read from some tables for a workspace, kept in memory until a commit changes one of the tables.

Invariant: a value in memory equals the one in the views; after a swap of the views file, values are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from ...schemas.ports import CommittedBatch, ViewReader
from ...schemas.views import Table

V = TypeVar("V")


class Kept(Generic[V]):
    """Values by workspace; used on the event loop.

    Args:
        views: Followed; ``close`` ends that.
        tables: A change of one of these makes the values old.
        read: Reads the value of a workspace.
    """

    def __init__(self, views: ViewReader, tables: Sequence[Table[Any]], read: Callable[[str], Awaitable[V]]) -> None:
        self._views = views
        self._tables = frozenset(table.name for table in tables)
        self._read = read
        self._values: dict[str, V] = {}
        self._version = 0
        self._generation = views.generation
        self.close: Callable[[], None] = views.subscribe(self._follow)

    async def of(self, workspace_id: str) -> V:
        """The value of a workspace."""
        if self._generation != self._views.generation:
            self._generation = self._views.generation
            self._forget()
        if workspace_id in self._values:
            return self._values[workspace_id]
        version = self._version
        value = await self._read(workspace_id)
        if version == self._version:
            self._values[workspace_id] = value
        return value

    def _follow(self, batch: CommittedBatch) -> None:
        if not self._tables.isdisjoint(batch.changes):
            self._forget()

    def _forget(self) -> None:
        self._values.clear()
        self._version += 1


def in_thread(read: Callable[[str], V]) -> Callable[[str], Awaitable[V]]:
    """A blocking read as one for the event loop."""
    return lambda workspace_id: asyncio.to_thread(read, workspace_id)
