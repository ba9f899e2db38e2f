"""Base classes of the payloads of control entries.

Invariant: each model is frozen and versioned; an entry's ``schema_version`` is the model's ``VERSION``. Unknown fields
are ignored when read, and mypy rejects them when written.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

STORED: Final = ConfigDict(defer_build=True, frozen=True, extra="ignore")
"""Configuration of every model that is read from the stream."""


class ControlPayload(BaseModel):
    """Base of every control payload."""

    model_config = STORED
    ENTRY_TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
