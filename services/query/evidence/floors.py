"""The floor of confidence that a workspace has set for ``inject``; most have none.

Invariant: the last configured floor counts, from the commit on that a recall's index has seen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from ....schemas.events.workspaces import EVIDENCE_FLOOR, WorkspaceConfigured
from ....schemas.ports import CommittedBatch, ViewReader
from ....schemas.views import WORKSPACE_SETTINGS

_SETTINGS: Final = f"SELECT settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


class Floors:
    """Reads floors and follows their changes.

    Args:
        views: The settings as folded; subscribed to at once.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._known: dict[str, float | None] = {}
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Follow no longer."""
        self._unsubscribe()

    async def of(self, workspace_id: str) -> float | None:
        """A workspace's floor, None if it has set none."""
        if workspace_id not in self._known:
            rows = await asyncio.to_thread(self._views.rows, _SETTINGS, [workspace_id])
            self._known.setdefault(workspace_id, _floor(json.loads(rows[0][0]) if rows else {}))
        return self._known[workspace_id]

    def _follow(self, batch: CommittedBatch) -> None:
        for event in batch.entries:
            if event.control and event.entry.entry_type == WorkspaceConfigured.ENTRY_TYPE:
                settings = event.entry.payload.get("settings")
                self._known[event.entry.workspace_id] = _floor(settings if isinstance(settings, dict) else {})


def _floor(settings: Mapping[str, Any]) -> float | None:
    floor = settings.get(EVIDENCE_FLOOR)
    return float(floor) if isinstance(floor, int | float) else None
