"""Bases of the payloads of control entries: what the service publishes, recorded like everything else.

Invariant: each model is frozen and versioned; ``schema_version`` of the entry is the model's ``VERSION``, and
``tests/golden`` holds one file per type and version. A stored payload may hold fields of a newer version, which are
ignored; a field that the service means to write and the model does not have is an error of mypy.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

STORED: Final = ConfigDict(defer_build=True, frozen=True, extra="ignore")
"""Of every model that is read from the stream, and of those inside it."""


class ControlPayload(BaseModel):
    """Base of every control payload."""

    model_config = STORED
    ENTRY_TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
