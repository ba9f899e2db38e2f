"""Converts messages to the events that folds read: decodes each message once, removes repeats, collects faults.

Invariant: the result depends on the log alone (the identity index only speeds up the search for the first entry with an
id), so live feed, bulk replay and catch-up pass the same events to a projection, whatever their batches. A message whose id
was erased by an earlier event is neither folded nor parked: the folds get ``ErasedReceived`` in its place, and the message
is deleted from the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from ...schemas.core import headers as h
from ...schemas.core.envelope import (
    DocumentWritten,
    EntryRecorded,
    ErasedReceived,
    Event,
    TokenBitsDerived,
    VectorDerived,
)
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import identity_key
from ...schemas.decode import decode
from ...schemas.entries.events import ERASURE_TYPES
from ...schemas.entries.tables import ADMISSION_PROJECTION, DECODE_STAGE
from ...schemas.erasure.lineage import sources_of
from ..feed.messages import RawMessage
from .admission import ADMISSION_VERSION, IdentityIndex, erased_by

DECODE_NAME: Final = DECODE_STAGE
"""Stands in place of the projection's name in dead letters for messages that cannot be decoded."""
DECODE_VERSION: Final = 1
_SUBJECT_PARTS: Final = 3
"""Fewest parts of a subject of JOURNAL; the second is the workspace."""


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
    for entry in entries:
        if entry.control and (keys := erased_by(entry)):
            index.bar(entry.seq, keys)
    if index.bars:
        decoded = [_erased(event, index) or event for event in decoded]
        entries = [event for event in decoded if isinstance(event, EntryRecorded)]
        late = {refused.message.seq: erased for refused in parked if (erased := _erased_unread(refused.message, index))}
        parked = [refused for refused in parked if refused.message.seq not in late]
        decoded = sorted([*decoded, *late.values()], key=attrgetter("seq")) if late else decoded
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


def _erased(event: Event, index: IdentityIndex) -> ErasedReceived | None:
    """What stands for an event that came after its id, or a source of what the service derived, was erased; else None."""
    names = _names_in(event)
    workspace_id = event.workspace_id
    for name in names:
        if index.is_barred(identity_key(workspace_id, name), event.seq):
            return ErasedReceived(event.seq, workspace_id, name)
    return None


def _names_in(event: Event) -> Iterable[str]:
    """The ids by which an erasure refuses an event: its own, and of a derived one those of its sources."""
    if isinstance(event, EntryRecorded):
        if event.entry.entry_type in ERASURE_TYPES:
            return ()
        return (event.entry.id, *sources_of(event)) if event.control else (event.entry.id,)
    return (event.write_id,) if isinstance(event, DocumentWritten) else sources_of(event)


def _erased_unread(message: RawMessage, index: IdentityIndex) -> ErasedReceived | None:
    """The same for a message that cannot be decoded, by the id in its header."""
    entry_id, parts = (message.headers or {}).get(h.ENTRY_ID), message.subject.split(".")
    if entry_id is None or len(parts) < _SUBJECT_PARTS:
        return None
    known = index.is_barred(identity_key(parts[1], entry_id), message.seq)
    return ErasedReceived(message.seq, parts[1], entry_id) if known else None


def _is_of_a_repeat(event: Event, index: IdentityIndex) -> bool:
    """Whether the event is a vector (or token bits) of an entry that does not count because its id was already used.

    Only entries before the fact matter, so an index that is ahead gives the same result.
    """
    if not isinstance(event, VectorDerived | TokenBitsDerived):
        return False
    first = index.find(event.workspace_id, event.entry_id)
    return first is not None and first.seq < event.seq and first.seq != event.entry_seq
