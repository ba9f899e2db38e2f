"""A cache of values that are read from tables; a commit that changes one of the tables invalidates them.

Invariant: a cached value equals the value in the views; after a swap of the views file, values are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from ..schemas.core.ports import CommittedBatch, ViewReader
from ..schemas.core.table import Table

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST: Final = 10_000
"""Maximum number of cached values; beyond it, the cache is emptied."""


class KeptValues(Generic[K, V]):
    """Values by workspace or another key; used on the event loop.

    Args:
        views: The views, followed until ``close``.
        outdated: A change of one of these tables, or a commit for which this function is true, invalidates the values.
        read: Reads a value; see ``in_thread``.
        most: Maximum number of values.
    """

    def __init__(
        self,
        views: ViewReader,
        outdated: Sequence[Table[Any]] | Callable[[CommittedBatch], bool],
        read: Callable[[K], Awaitable[V]],
        *,
        most: int = MOST,
    ) -> None:
        self._views = views
        self._outdated = outdated if callable(outdated) else changes_of(outdated)
        self._read = read
        self._most = most
        self._values: dict[K, V] = {}
        self._generation = views.generation
        self.close: Callable[[], None] = views.subscribe(self._follow)

    async def of(self, key: K) -> V:
        """The value of a key, up to date with the views."""
        if self._generation != self._views.generation or len(self._values) > self._most:
            self._generation, self._values = self._views.generation, {}
        values = self._values
        if key not in values:
            values[key] = await self._read(key)  # if a commit happens meanwhile, it replaces ``_values``
        return values[key]

    def _follow(self, batch: CommittedBatch) -> None:
        if self._outdated(batch):
            self._values = {}


def changes_of(tables: Sequence[Table[Any]]) -> Callable[[CommittedBatch], bool]:
    """Whether a commit changed one of these tables."""
    names = frozenset(table.name for table in tables)
    return lambda batch: not names.isdisjoint(batch.changes)


def in_thread(read: Callable[[K], V]) -> Callable[[K], Awaitable[V]]:
    """Wrap a blocking read, so that it runs in a thread."""
    return lambda key: asyncio.to_thread(read, key)
