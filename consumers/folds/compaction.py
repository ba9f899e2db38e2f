"""The entries that the compactions of a batch archive, for every fold with rows about them.

Invariant: every fold rejects the same events, so an entry is archived in all views or in none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.errors import FoldError
from ...schemas.events.compaction import MemoryCompacted
from ...schemas.events.envelope import EntryRecorded
from ..projection import Batch
from .payloads import payload_of


@dataclass(frozen=True, slots=True)
class Compaction:
    """One event, its payload and the sequences it names, ascending and all before it."""

    event: EntryRecorded
    payload: MemoryCompacted
    sequences: list[int]


def compactions(batch: Batch) -> list[Compaction]:
    """The compactions of a batch, in stream order.

    Raises:
        FoldError: If one is not valid, or names a sequence that does not come before it.
    """
    return [_read(event) for event in batch.control(MemoryCompacted.ENTRY_TYPE)]


def _read(event: EntryRecorded) -> Compaction:
    payload = payload_of(event, MemoryCompacted)
    ranges = payload.entries.ranges
    if ranges[-1][1] >= event.seq:
        raise FoldError(f"the compaction at {event.seq} names the sequence {ranges[-1][1]}, which is not before it")
    return Compaction(event, payload, [seq for first, last in ranges for seq in range(first, last + 1)])
