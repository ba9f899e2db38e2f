"""The catalogue of entry types (contract §1), read from ``catalogue.json``.

Invariant: a type that is not in the catalogue is accepted, stored and listed. A key that ends in ``.*`` stands for
every type below it; the longest match counts.
"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import Final

from pydantic import BaseModel, ConfigDict


class PublisherKind(StrEnum):
    """The callers that may publish a type.

    ``agents``: every token. ``vouched``: OWNER, ADMIN and tokens that were granted the type (decisions of keepers,
    orchestrators, sidecars and systems). ``operators``: OWNER and ADMIN. ``service``: the service alone. ``reserved``:
    also the service alone; but a journal from before the reservation may hold such entries from agents on ``journal.``,
    which stay ordinary entries.
    """

    AGENTS = "agents"
    VOUCHED = "vouched"
    OPERATORS = "operators"
    SERVICE = "service"
    RESERVED = "reserved"


SERVICE_ALONE: Final = frozenset({PublisherKind.SERVICE, PublisherKind.RESERVED})
"""Publishers whose types no token can submit."""
_DECIDING: Final = frozenset({PublisherKind.SERVICE, PublisherKind.OPERATORS})


class EntryTypeInfo(BaseModel):
    """Properties of an entry type.

    ``noise``: left out of recall by default. ``quiet``: left out of the realtime feed. ``conversation``: a turn of a
    conversation, to which the rules about sessions and speakers apply. ``private``: its payload is in no list or
    search, because every view must drop it at once when the person asks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    group: str
    publisher: PublisherKind = PublisherKind.AGENTS
    noise: bool = False
    quiet: bool = False
    conversation: bool = False
    private: bool = False


UNKNOWN: Final = EntryTypeInfo(group="other")


@cache
def catalogue() -> dict[str, EntryTypeInfo]:
    """The catalogue: type or ``prefix.*`` → its properties."""
    text = resources.files("crew_journal.schemas").joinpath("catalogue.json").read_text("utf-8")
    return {name: EntryTypeInfo.model_validate(info) for name, info in json.loads(text).items()}


@lru_cache(maxsize=4_096)
def info_of(entry_type: str) -> EntryTypeInfo:
    """Properties of ``entry_type``; ``UNKNOWN`` if the catalogue does not hold it."""
    known = catalogue()
    if entry_type in known:
        return known[entry_type]
    parts = entry_type.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (info := known.get(".".join(parts[:end]) + ".*")) is not None:
            return info
    return UNKNOWN


def is_control_type(entry_type: str) -> bool:
    """Whether the type records a decision and is therefore accepted on ``control.`` only."""
    return info_of(entry_type).publisher in _DECIDING


def publishers_of(pattern: str) -> frozenset[PublisherKind]:
    """Publishers of all types that a type or ``prefix.*`` covers, unknown types included."""
    if not pattern.endswith(".*"):
        return frozenset({info_of(pattern).publisher})
    below = (info.publisher for name, info in catalogue().items() if name.startswith(pattern.removesuffix("*")))
    return frozenset({info_of(pattern).publisher, *below})
