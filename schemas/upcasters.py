"""Upcasters convert stored records to the newest version of their payload, before validation.

Invariant: every event that was ever published can be read. An upcaster is a pure function from one version to the next.
A version newer than any known is not changed.
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
    """Register a function that converts ``entry_type`` from ``version`` to ``version + 1``."""

    def register(function: Upcaster) -> Upcaster:
        if (entry_type, version) in UPCASTERS:
            raise ValueError(f"two upcasters for {entry_type} version {version}")
        UPCASTERS[(entry_type, version)] = function
        return function

    return register


def upcast(record: Record, chain: Mapping[tuple[str, int], Upcaster] = UPCASTERS) -> Record:
    """The record, converted to the newest version that ``chain`` has for its type.

    ``entry_type`` does not change; each step increments ``schema_version``. A record whose version is not a number is
    returned unchanged; validation refuses it.
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
