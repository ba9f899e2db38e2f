"""Upcasters: (entry type, version) → the raw record of the next version, applied before validation.

Invariant: what was once published can be read for ever. An upcaster is a pure function of the record; chains run
from the stored version to the newest known one. A stored version newer than any known is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

_whole: Final = TypeAdapter(int).validate_python
Record = dict[str, Any]
Upcaster = Callable[[Record], Record]

UPCASTERS: Final[dict[tuple[str, int], Upcaster]] = {}
"""``(entry_type, stored version)`` → function to version + 1. ``tests/golden`` proves each on stored bytes."""


def upcaster(entry_type: str, version: int) -> Callable[[Upcaster], Upcaster]:
    """Register a function that lifts ``entry_type`` from ``version`` to ``version + 1``."""

    def register(function: Upcaster) -> Upcaster:
        if (entry_type, version) in UPCASTERS:
            raise ValueError(f"two upcasters for {entry_type} version {version}")
        UPCASTERS[(entry_type, version)] = function
        return function

    return register


def upcast(record: Record, chain: Mapping[tuple[str, int], Upcaster] = UPCASTERS) -> Record:
    """The record at the newest version that ``chain`` knows for its type.

    The envelope's ``entry_type`` stays; each step sets ``schema_version`` one higher. A version is read as the envelope
    reads it (``1.0`` is 1); a record whose version is no number is left as it is, for validation to refuse.
    """
    if not chain:
        return record
    entry_type = record.get("entry_type")
    try:
        version = _whole(record.get("schema_version", 1))
    except ValidationError:
        return record
    while isinstance(entry_type, str) and (step := chain.get((entry_type, version))) is not None:
        version += 1
        record = {**step(record), "entry_type": entry_type, "schema_version": version}
    return record
