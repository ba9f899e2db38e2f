"""Payloads about memory documents beside their writes: settings, the sweep of versions, writes that were refused.

Invariant: none holds text of a document.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..entry import Id
from ..recorded_settings import MemorySettings
from .payload import ControlPayload, EntryTypeInfo, PublisherKind

RejectionReason = Literal["cap", "scrubber", "injection", "provider"]


class MemoryConfigUpdated(MemorySettings, ControlPayload):
    """All settings of a workspace's memory documents; the last event counts."""

    ENTRY_TYPE = "memory.config_updated"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)


class MemoryVersionsSwept(ControlPayload):
    """The text of the workspace's old versions is gone; the present text of a document is not affected.

    Attributes:
        cutoff_ms: Versions published before this time, milliseconds since the epoch.
        keep_latest: Number of versions of each document that are kept, however old they are.
        count: Number of versions whose text was removed, by the views of the service.
    """

    ENTRY_TYPE = "memory.versions_swept"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True, quiet=True)
    cutoff_ms: int = Field(ge=0, le=2**53)
    keep_latest: int = Field(ge=0, le=1_000)
    count: int = Field(default=0, ge=0)


class MemoryWriteRejected(ControlPayload):
    """A write that was refused.

    Attributes:
        owner: Owner of the document (``rules/tiers.owner_of``).
        reason: Which check refused it; ``provider`` if the memory provider did.
        finding: ``category/pattern`` of what was found; ``provider/<error>`` if the memory provider refused it.
        bytes: Size that the document would have had.
        cap_bytes: Maximum size of the document.
    """

    ENTRY_TYPE = "memory.write_rejected"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    tier: str = Field(min_length=1, max_length=32)
    key: str | None = Field(default=None, max_length=512)
    owner: str = Field(min_length=1, max_length=66)
    reason: RejectionReason
    source: str = Field(default="api", max_length=32)
    finding: str | None = Field(default=None, max_length=200)
    bytes: int | None = Field(default=None, ge=0)
    cap_bytes: int | None = Field(default=None, ge=0)


class MemoryWriteVerifierBlocked(ControlPayload):
    """A write that the verifier refused.

    Attributes:
        problem: Name of the problem: a citation out of date, a pinned fact contradicted.
        conflicts_with: Entries and document writes that the write contradicts.
    """

    ENTRY_TYPE = "memory.write_verifier_blocked"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    tier: str = Field(min_length=1, max_length=32)
    key: str | None = Field(default=None, max_length=512)
    owner: str = Field(min_length=1, max_length=66)
    problem: str = Field(min_length=1, max_length=200)
    source: str = Field(default="api", max_length=32)
    conflicts_with: tuple[Id, ...] = Field(default=(), max_length=100)
