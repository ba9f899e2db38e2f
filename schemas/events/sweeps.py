"""Payloads of sweeps: that one is due, and what it did."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .payload import ControlPayload


class SweepFinished(ControlPayload):
    """What a sweep did, so that a dead one does not look like a quiet day."""

    ENTRY_TYPE = "sweep.finished"
    sweep: Literal["decay", "health", "index", "compaction", "consolidation", "operators"]
    due: str
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = Field(default=None, max_length=500)


class SweepTicked(ControlPayload):
    """A sweep is due; its folds and reactors take the time from ``due`` (RFC 3339, UTC).

    One tick for each workspace, sweep and due time, with a deterministic id, however many nodes keep time.
    """

    ENTRY_TYPE = "sweep.ticked"
    sweep: Literal["decay", "health", "index", "compaction", "consolidation", "operators"]
    due: str
