"""Converts messages to the events that folds read: decoded once, without repeats, with their faults.

Invariant: a function of the log alone (the identity index only speeds up "which one was first"), so live feed, bulk
replay and catch-up hand the same events to the same projection, however they cut their batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...schemas.core.envelope import EntryRecorded, Event, TokenBitsDerived, VectorDerived
from ...schemas.core.errors import FoldError
from ...schemas.decode import decode
from ...schemas.entries.tables import ADMISSION_PROJECTION, DECODE_STAGE
from ..feed.messages import RawMessage
from .admission import ADMISSION_VERSION, IdentityIndex

DECODE_NAME: Final = DECODE_STAGE
"""Stands for a projection in dead letters of messages that are not an event of a known version."""
DECODE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that a projection (or ``decode``, or ``admission``) cannot take, and why.

    Attributes:
        projection: Name of the projection that refused it.
        version: Its version; (projection, version, seq) names the parking for ever.
        message: The message as it came.
        reason: What is wrong with it, without its text.
    """

    projection: str
    version: int
    message: RawMessage
    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch ready to be folded.

    Attributes:
        first_seq: First stream sequence covered.
        last_seq: Last stream sequence covered, gaps at the end included.
        events: Canonical events in stream order.
        parked: Refused by ``decode`` and ``admission``.
        messages: Sequence → message of every event, to park what a fold refuses.
    """

    first_seq: int
    last_seq: int
    events: list[Event]
    parked: list[Parked]
    messages: Mapping[int, RawMessage]


def in_order(messages: Sequence[RawMessage], after: int) -> list[RawMessage]:
    """The messages beyond ``after``, each once, in stream order: redelivery may repeat and shuffle a batch."""
    last = after
    for message in messages:
        if message.seq <= last:
            break
        last = message.seq
    else:
        return list(messages)
    once = {message.seq: message for message in messages if message.seq > after}
    return [once[seq] for seq in sorted(once)]


def prepare(messages: Sequence[RawMessage], index: IdentityIndex, first_seq: int, last_seq: int) -> Prepared:
    """Decode and admit; CPU only, for a thread beside the event loop.

    Args:
        messages: Each once, in stream order.
        index: Learns the entries.
        first_seq: First sequence the batch covers.
        last_seq: Last sequence the batch covers.
    """
    decoded: list[Event] = []
    parked: list[Parked] = []
    for message in messages:
        try:
            decoded.append(decode(message.seq, message.subject, message.headers, message.data, message.published_ms))
        except FoldError as error:
            parked.append(Parked(DECODE_NAME, DECODE_VERSION, message, error.message))
    by_seq = {message.seq: message for message in messages}
    entries = [event for event in decoded if isinstance(event, EntryRecorded)]
    refused: set[int] = set()
    for entry, first in zip(entries, index.admit(entries), strict=True):
        if first is None:
            continue
        refused.add(entry.seq)
        first_at, first_content = first
        if first_content != entry.content:
            reason = f"the id {entry.entry.id} belongs to the entry at {first_at}, which has other content"
            parked.append(Parked(ADMISSION_PROJECTION, ADMISSION_VERSION, by_seq[entry.seq], reason))
    events = [e for e in decoded if e.seq not in refused and not _is_of_a_repeat(e, index)]
    return Prepared(first_seq, last_seq, events, parked, by_seq)


def _is_of_a_repeat(event: Event, index: IdentityIndex) -> bool:
    """Whether it is a vector (or token bits) of an entry that does not count, because another was the first with its id.

    Decided by entries before the fact alone, so an index that is ahead changes nothing.
    """
    if not isinstance(event, VectorDerived | TokenBitsDerived):
        return False
    first = index.find(event.workspace_id, event.entry_id)
    return first is not None and first.seq < event.seq and first.seq != event.entry_seq
