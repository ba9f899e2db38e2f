"""The settings of a workspace for writes: how secrets are treated, and whether a write is verified.

Invariant: the settings of the last event that the views have folded count.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ....schemas.events.memory_documents import MemoryConfigUpdated
from ....schemas.ports import CommittedBatch, ViewReader
from ....schemas.views import MEMORY_CONFIG
from ....schemas.views.documents import MemoryConfigRow

_SELECT: Final = f"SELECT {MEMORY_CONFIG.names} FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_DEFAULT: Final = MemoryConfigUpdated()


class MemoryConfigs:
    """Settings of workspaces, kept until one changes.

    Args:
        views: The settings as folded; followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._known: dict[str, MemoryConfigRow] = {}
        self._generation = views.generation
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()

    async def of(self, workspace_id: str) -> MemoryConfigRow:
        """The settings of a workspace; the defaults if it has none."""
        if self._views.generation != self._generation:
            self._generation, self._known = self._views.generation, {}
        known = self._known
        if (row := known.get(workspace_id)) is None:
            rows = await asyncio.to_thread(self._views.rows, _SELECT, [workspace_id])
            row = MemoryConfigRow(*rows[0]) if rows else _default(workspace_id)
            known[workspace_id] = row  # of a dict that no longer counts if a setting has changed meanwhile
        return row

    def _follow(self, batch: CommittedBatch) -> None:
        if MEMORY_CONFIG.name in batch.changes:
            self._known = {}


def _default(workspace_id: str) -> MemoryConfigRow:
    return MemoryConfigRow(workspace_id, None, _DEFAULT.scrubber, _DEFAULT.verifier, 0)
