"""The palace of a node: what reads it and what writes it."""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.ports import ViewReader
from ..journal.intake.recorder import Recorder
from ..query.chunks.documents import RecordSearch
from .filing import PalaceFiling
from .navigation import Navigation
from .reading import PalaceReading
from .rows import DrawerReader
from .searching import DrawerSearch


@dataclass(frozen=True, slots=True)
class Palace:
    """The use-cases."""

    reading: PalaceReading
    filing: PalaceFiling
    navigation: Navigation
    drawers: DrawerReader
    search: DrawerSearch

    @classmethod
    def over(cls, views: ViewReader, journal: Recorder, search: DrawerSearch, record: RecordSearch) -> Palace:
        """The palace that these views show.

        Args:
            views: The views.
            journal: Records writes.
            search: Searches drawers.
            record: Records searches.
        """
        drawers = DrawerReader(views)
        return cls(
            PalaceReading(drawers, search, record),
            PalaceFiling(views, drawers, journal),
            Navigation(drawers.places),
            drawers,
            search,
        )
