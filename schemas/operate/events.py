"""Payloads about dead letters: events that a projection could not fold."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind


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


# The payload that records a call of a tool.


MOST_BYTES: Final = 4_096
"""Maximum size of input and of output in a record, in bytes and in characters (contract of the palace, §11)."""


class ToolCalled(ControlPayload):
    """A model called a tool.

    Attributes:
        input: The arguments as JSON; a placeholder if they are too long, or if the text is in the journal already.
        output: The answer to the model, likewise.
        seq: Sequence of the message that the call wrote, or None.
        receipt: Receipt of the recall, or None.
    """

    ENTRY_TYPE = "audit.tool_called"
    tool: str = Field(max_length=64)
    input: str = Field(max_length=MOST_BYTES)
    output: str = Field(max_length=MOST_BYTES)
    is_error: bool = False
    duration_ms: float = Field(ge=0.0, allow_inf_nan=False)
    seq: int | None = None
    receipt: Id | None = None
