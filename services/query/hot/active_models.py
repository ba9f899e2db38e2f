"""Which model recall uses in each workspace, in memory: asked by every recall, changed a few times a year.

Invariant: an answer is that of the views as last announced (``schemas/active_models``). Used on the event loop alone, or
a commit could fall between a read and its being kept; what is read after a decision or a rebuild is two tables of a few
rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....schemas.active_models import active_in, read_active_models
from ....schemas.events.embeddings import MODEL_DECISIONS
from ....schemas.events.envelope import EntryRecorded
from ....schemas.ports import CommittedBatch, ViewReader


def decides_models(event: EntryRecorded) -> bool:
    """Whether an entry may change which model is active somewhere."""
    return event.control and event.entry.entry_type in MODEL_DECISIONS


class ActiveModels:
    """Follows the activations.

    Args:
        views: The views; subscribed to at once, so whoever is made after this sees commits after it.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._models: dict[str, str] | None = None
        self._generation = -1
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Follow no longer."""
        self._unsubscribe()

    def of(self, workspace_id: str) -> str | None:
        """The model recall uses in a workspace, None if there is none."""
        return active_in(self._current(), workspace_id)

    def _current(self) -> Mapping[str, str]:
        if self._models is None or self._generation != self._views.generation:
            self._generation = self._views.generation
            self._models = read_active_models(self._views)
        return self._models

    def _follow(self, batch: CommittedBatch) -> None:
        if any(map(decides_models, batch.entries)):
            self._models = None
