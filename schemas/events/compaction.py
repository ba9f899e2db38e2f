"""Payload of a compaction: the entries that move from the table of entries to the archive.

Invariant: the messages of the entries stay in the stream.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, model_validator

from ..entry import Id
from ..sequence_set import InParts, SequenceSet, size_of
from .payload import ControlPayload, EntryTypeInfo, PublisherKind

PART_ENTRIES: Final = 4_500
"""Maximum number of entries of one event: sequences of up to 13 digits fit into ``sequence_set.MAX_TEXT``."""


class MemoryCompacted(ControlPayload, InParts):
    """Entries of one crew, UTC day and type are archived; its ``ts`` is 23:59:59 of that day.

    A large bucket has several parts; all figures are those of the part.

    Attributes:
        crew_id: The crew, None for entries without one.
        entry_type: The type of the archived entries.
        count: Number of archived entries.
        bytes_sum: Bytes of their messages.
        bytes_freed: Bytes of summaries and payloads that the archive does not keep.
        first_ts: Time of the oldest one (RFC 3339, UTC).
        cutoff: Time before which all of them happened.
        entries: Their sequences.
    """

    ENTRY_TYPE = "memory.compacted"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE)
    crew_id: Id | None = None
    bucket_date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    entry_type: str = Field(min_length=1, max_length=96)
    count: int = Field(ge=1, le=PART_ENTRIES)
    bytes_sum: int = Field(ge=0)
    bytes_freed: int = Field(ge=0)
    first_ts: str
    last_ts: str
    cutoff: str
    entries: SequenceSet

    @model_validator(mode="after")
    def _counts_its_entries(self) -> MemoryCompacted:
        if size_of(self.entries.ranges) != self.count:
            raise ValueError("count must be the number of sequences in entries")
        return self
