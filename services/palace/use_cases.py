"""The palace of a node: what reads it and what writes it."""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.ports import ViewReader
from ...schemas.rules.text import Analyzer
from ..journal.intake.recorder import Recorder
from ..query.chunks.documents import RecordSearch
from .filing import PalaceFiling
from .navigation import Navigation
from .reading import PalaceReading
from .rows import DrawerReader
from .words import DrawerSearch


@dataclass(frozen=True, slots=True)
class Palace:
    """The use-cases."""

    reading: PalaceReading
    filing: PalaceFiling
    navigation: Navigation
    drawers: DrawerReader
    words: DrawerSearch

    @classmethod
    def over(cls, views: ViewReader, journal: Recorder, analyzer: Analyzer, record: RecordSearch) -> Palace:
        """The palace that these views show.

        Args:
            views: The views.
            journal: Records writes.
            analyzer: Turns texts into terms.
            record: Records searches.
        """
        drawers, words = DrawerReader(views), DrawerSearch(views, analyzer)
        return cls(
            PalaceReading(drawers, words, record),
            PalaceFiling(views, drawers, journal),
            Navigation(drawers.places),
            drawers,
            words,
        )
