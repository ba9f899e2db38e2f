"""Base class of the payloads of control entries, with the properties of their type.

Invariant: each model is frozen and versioned; an entry's ``schema_version`` is the model's ``VERSION``. Unknown fields
are ignored when read, and mypy rejects them when written.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

STORED: Final = ConfigDict(defer_build=True, frozen=True, extra="ignore")
"""Configuration of every model that is read from the stream."""


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


class ControlPayload(BaseModel):
    """Base of every control payload; ``schemas.catalogue`` takes the properties of its type from ``INFO``."""

    model_config = STORED
    ENTRY_TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    SCANNED: ClassVar[bool] = True
    """Whether it is scanned for credentials: not if it holds no text of people or agents."""
    INFO: ClassVar[EntryTypeInfo] = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE, noise=True)
