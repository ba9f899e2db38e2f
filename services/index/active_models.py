"""Caches in memory which model recall uses in each workspace.

Invariant: the answer is that of ``schemas/models/tables`` as of the last announced commit. Used on the event loop only,
so that no commit can come between reading and caching.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.models.events import MODEL_DECISIONS
from ...schemas.models.tables import active_in, read_active_models

_DECISIONS: Final = frozenset(payload.ENTRY_TYPE for payload in MODEL_DECISIONS)


def decides_models(event: EntryRecorded) -> bool:
    """Whether an entry may change which model is active."""
    return event.control and event.entry.entry_type in _DECISIONS


class ActiveModels:
    """The active model of each workspace, kept up to date.

    Args:
        views: The views; subscribes in the constructor, so later subscribers see a commit after this object.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._models: dict[str, str] | None = None
        self._generation = -1
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following commits."""
        self._unsubscribe()

    def of(self, workspace_id: str) -> str | None:
        """The active model of a workspace, or None."""
        return active_in(self._current(), workspace_id)

    def _current(self) -> Mapping[str, str]:
        if self._models is None or self._generation != self._views.generation:
            self._generation = self._views.generation
            self._models = read_active_models(self._views)
        return self._models

    def _follow(self, batch: CommittedBatch) -> None:
        if any(map(decides_models, batch.entries)):
            self._models = None
