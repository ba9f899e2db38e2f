"""Payloads about dead letters: events that a projection could not fold."""

from __future__ import annotations

from pydantic import Field

from .payload import ControlPayload, EntryTypeInfo, PublisherKind


class EventParked(ControlPayload):
    """A projection could not fold an event, which was moved to DEADLETTER."""

    ENTRY_TYPE = "projection.event_parked"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    projection: str
    version: int
    seq: int = Field(ge=1)
    subject: str
    reason: str = Field(max_length=1_000)


class DeadLetterRetried(ControlPayload):
    """A parked event was published again as a new one."""

    ENTRY_TYPE = "projection.dead_letter_retried"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    projection: str
    seq: int = Field(ge=1)
    new_seq: int = Field(ge=1)


class DeadLetterDiscarded(ControlPayload):
    """An operator discarded a dead letter."""

    ENTRY_TYPE = "projection.dead_letter_discarded"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    projection: str
    seq: int = Field(ge=1)
    reason: str = Field(default="", max_length=500)
