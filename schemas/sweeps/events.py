"""Payloads of sweeps: due, and finished."""

from __future__ import annotations

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind
from .rules import SweepName


class SweepFinished(ControlPayload):
    """A sweep finished, with its counts."""

    ENTRY_TYPE = "sweep.finished"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    sweep: SweepName
    due: str
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = Field(default=None, max_length=500)


class SweepTicked(ControlPayload):
    """A sweep is due. Its folds and reactors take the time from ``due`` (RFC 3339, UTC).

    The id is deterministic, so several nodes publish one tick for each workspace, sweep and due time.

    Attributes:
        crew_id: The crew, of a consolidation on request; all if None.
        since: Beginning of the look-back of a consolidation on request; the sweep's interval before ``due`` if None.
    """

    ENTRY_TYPE = "sweep.ticked"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    sweep: SweepName
    due: str
    crew_id: Id | None = None
    since: str | None = None
