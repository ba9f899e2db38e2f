"""The payload that records a call of a tool."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..entry import Id
from .payload import ControlPayload

MOST_BYTES: Final = 4_096
"""Bytes of input and of output that a record holds (contract of the palace, §11); it has at most as many characters."""


class ToolCalled(ControlPayload):
    """A model called a tool.

    Attributes:
        input: The arguments as JSON; a placeholder if they are too long, or if the text is in the journal already.
        output: What the model got, likewise.
        seq: Sequence of what the call wrote, or None.
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
