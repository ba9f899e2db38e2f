"""The use-cases of memory documents, made together.

Invariant: every method takes a ``Caller`` and a request, so that shells and providers call the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ....schemas.ports import ViewReader
from ....schemas.recorded_settings import ScrubberMode
from ...journal.intake.recorder import ScrubbingRecorder
from ...journal.intake.secrets import DEFAULT_MODE
from .administration import Administration
from .ports import DocumentPublisher, Enabled
from .quarantine import Quarantine
from .reading import Reading
from .writing import Writing


class Documents:
    """Reading, writing and administration.

    Args:
        views: The views of documents.
        writer: Publishes writes.
        journal: Records refusals.
        enabled: Which agents have a memory.
        quarantine: Keeps the text of injections.
        clock: The time now, UTC.
        scrubber: What is done with credentials in a workspace without settings.
    """

    def __init__(
        self,
        views: ViewReader,
        writer: DocumentPublisher,
        journal: ScrubbingRecorder,
        enabled: Enabled,
        quarantine: Quarantine,
        *,
        clock: Callable[[], datetime],
        scrubber: ScrubberMode = DEFAULT_MODE,
    ) -> None:
        self.reading = Reading(views, enabled, clock=clock)
        self.writing = Writing(views, writer, journal, enabled, quarantine, clock=clock)
        self.administration = Administration(views, journal, clock=clock, scrubber=scrubber)
        self.close = self.writing.close
