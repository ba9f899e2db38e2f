"""The payload that records a call of a tool."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..entry import Id
from .payload import ControlPayload

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
