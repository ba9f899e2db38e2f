"""The palace of a node: the use-cases that read and write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ...schemas.ports import ViewReader
from ...schemas.views.drawers import DRAWERS_PROJECTION
from ...schemas.views.tunnels import TUNNELS_PROJECTION
from ..journal.intake.recorder import ScrubbingRecorder
from ..query.chunks.documents import RecordSearch
from .filing import PalaceFiling
from .importing import PalaceImport
from .navigation import Navigation
from .reading import PalaceReading
from .recording import PalaceRecorder
from .rows import DrawerReader
from .searching import DrawerSearch
from .tunnels import Tunnels


@dataclass(frozen=True, slots=True)
class Palace:
    """The use-cases."""

    reading: PalaceReading
    filing: PalaceFiling
    navigation: Navigation
    tunnels: Tunnels
    importing: PalaceImport
    drawers: DrawerReader
    search: DrawerSearch

    @classmethod
    def over(
        cls,
        views: ViewReader,
        journal: ScrubbingRecorder,
        search: DrawerSearch,
        record: RecordSearch,
        clock: Callable[[], datetime],
    ) -> Palace:
        """The palace that these views show.

        Args:
            views: The views.
            journal: Records writes.
            search: Searches drawers.
            record: Records searches.
            clock: The time now, UTC.
        """
        drawers = DrawerReader(views)
        tunnels = Tunnels(views, drawers, PalaceRecorder(views, journal, TUNNELS_PROJECTION), clock)
        recorder = PalaceRecorder(views, journal, DRAWERS_PROJECTION)
        filing = PalaceFiling(drawers, recorder)
        return cls(
            PalaceReading(drawers, search, record),
            filing,
            Navigation(drawers.places, tunnels.explicit),
            tunnels,
            PalaceImport(drawers, recorder, filing.one_at_a_time),
            drawers,
            search,
        )
