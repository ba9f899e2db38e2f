"""How often entries were used, in memory for the workspaces in use.

Invariant: a workspace is read once; then every commit brings the rows that it changed. After a swap of the views file, all
are read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...schemas.ports import CommittedBatch, ViewReader
from ...schemas.views import IMPORTANCE

MOST_WORKSPACES: Final = 32
"""Workspaces that are kept; 10,000 used entries take 2 MB."""
_READ: Final = f"""SELECT entry_id, reference_count, last_referenced_at FROM {IMPORTANCE}
    WHERE workspace_id = ? AND reference_count > 0"""
_COLUMNS: Final = ("workspace_id", "entry_id", "reference_count", "last_referenced_at")


@dataclass(frozen=True, slots=True)
class Uses:
    """How often an entry was used, and when last."""

    count: int = 0
    last_ms: int | None = None


NEVER: Final = Uses()


class UseCounts:
    """The uses by entry; on the event loop.

    Args:
        views: Read once for each workspace, then followed; ``close`` ends that.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._generation = views.generation
        self._uses: OrderedDict[str, dict[str, Uses]] = OrderedDict()
        self._loaded: set[str] = set()
        self._loading = asyncio.Lock()
        self.close = views.subscribe(self._follow)

    async def of(self, workspace_id: str) -> Mapping[str, Uses]:
        """Entry → its uses; those that were never used are not in it."""
        if self._generation != self._views.generation:
            self._generation = self._views.generation
            self._uses.clear()
            self._loaded.clear()
        if workspace_id not in self._loaded:
            async with self._loading:
                if workspace_id not in self._loaded:
                    await self._load(workspace_id)
        self._uses.move_to_end(workspace_id)
        return self._uses[workspace_id]

    async def _load(self, workspace_id: str) -> None:
        known = self._uses[workspace_id] = {}  # commits from here on are kept and newer than what is read
        for entry_id, count, last_ms in await asyncio.to_thread(self._views.rows, _READ, [workspace_id]):
            known.setdefault(entry_id, Uses(count, last_ms))
        self._uses[workspace_id] = known
        self._loaded.add(workspace_id)
        while len(self._uses) > MOST_WORKSPACES:
            self._loaded.discard(self._uses.popitem(last=False)[0])

    def _follow(self, batch: CommittedBatch) -> None:
        if (changes := batch.changes.get(IMPORTANCE.name)) is None:
            return
        for columns in changes.written:
            for workspace_id, entry_id, count, last_ms in zip(*(columns[name] for name in _COLUMNS), strict=True):
                if count and (known := self._uses.get(workspace_id)) is not None:
                    known[entry_id] = Uses(int(count), None if last_ms is None else int(last_ms))
