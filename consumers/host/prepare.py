"""Converts messages to the events that folds read: decodes each message once, removes repeats, collects faults.

Invariant: the result depends on the log alone (the identity index only speeds up the search for the first entry with an
id), so live feed, bulk replay and catch-up pass the same events to a projection, whatever their batches.
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
"""Stands in place of the projection's name in dead letters for messages that cannot be decoded."""
DECODE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that a projection (or ``decode``, or ``admission``) refused, and the reason.

    Attributes:
        projection: Name of the projection that refused it.
        version: Its version; (projection, version, seq) identifies the parking permanently.
        message: The unchanged message.
        reason: The reason, without the message's text.
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
        last_seq: Last stream sequence covered, including gaps at the end.
        events: Canonical events in stream order.
        parked: Messages that ``decode`` and ``admission`` refused.
        messages: Sequence → message of every event, so that an event that a fold refuses can be parked.
    """

    first_seq: int
    last_seq: int
    events: list[Event]
    parked: list[Parked]
    messages: Mapping[int, RawMessage]


def in_order(messages: Sequence[RawMessage], after: int) -> list[RawMessage]:
    """The messages beyond ``after``, each once, in stream order: redelivery may repeat and reorder messages."""
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
    """Decode and admit; CPU only, so run it in a thread.

    Args:
        messages: Each once, in stream order.
        index: Adds the entries to itself.
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
    """Whether the event is a vector (or token bits) of an entry that does not count because its id was already used.

    Only entries before the fact matter, so an index that is ahead gives the same result.
    """
    if not isinstance(event, VectorDerived | TokenBitsDerived):
        return False
    first = index.find(event.workspace_id, event.entry_id)
    return first is not None and first.seq < event.seq and first.seq != event.entry_seq
