"""A message of JOURNAL → an event, once, for live feed and bulk replay alike.

Invariant: pure and deterministic; whatever is wrong with a message is a ``FoldError`` (it is parked), never another
exception. A message on ``journal.`` is trusted for nothing but its subject: what its body says of workspace, crew,
agent and type must agree, and it may hold no control type and no priority but ``normal`` (the service publishes those
on ``control.``, where agents may not).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from crew_journal.schemas.catalogue import is_control_type
from crew_journal.schemas.entry import MAX_ENTRY_BYTES, JournalEntry, Priority, problems_of
from crew_journal.schemas.errors import FoldError
from crew_journal.schemas.events import headers as h
from crew_journal.schemas.events.derived import decode_link, decode_vector
from crew_journal.schemas.events.documents import decode_document
from crew_journal.schemas.events.envelope import EntryRecorded, Event, UnknownDerived
from crew_journal.schemas.ids import entry_id_at, identity_key
from crew_journal.schemas.plain import plain_entry
from crew_journal.schemas.subjects import DerivedKind, Family, Subject, parse_subject
from crew_journal.schemas.timestamps import format_ms, to_ms
from crew_journal.schemas.upcasters import upcast

_NO_HEADERS: Final[Mapping[str, str]] = {}
_CONTENT_BYTES: Final = 16


def decode(seq: int, subject: str, headers: Mapping[str, str] | None, body: bytes, published_ms: int) -> Event:
    """The event of one message.

    Args:
        seq: Stream sequence.
        subject: Subject it was published on.
        headers: Its headers, None if it has none.
        body: Its body.
        published_ms: The broker's time of it, milliseconds since the epoch.

    Raises:
        FoldError: If the message breaks the format; the message says how, without quoting its text.
    """
    parsed = parse_subject(subject)
    known = headers or _NO_HEADERS
    if parsed.family is Family.JOURNAL or parsed.family is Family.CONTROL:
        return _entry(seq, parsed, known, body, published_ms)
    if parsed.family is Family.DOCUMENT:
        return decode_document(seq, parsed, body, published_ms)
    if parsed.kind == DerivedKind.VECTOR:
        return decode_vector(seq, parsed.workspace, known, body, published_ms)
    if parsed.kind == DerivedKind.LINK:
        return decode_link(seq, parsed.workspace, known, body, published_ms)
    return UnknownDerived(seq, parsed.workspace, parsed.kind)


def _entry(seq: int, subject: Subject, headers: Mapping[str, str], body: bytes, published_ms: int) -> EntryRecorded:
    if len(body) > MAX_ENTRY_BYTES:
        raise FoldError(f"the entry at {seq} has {len(body)} bytes, more than {MAX_ENTRY_BYTES}")
    try:
        record = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise FoldError(f"the entry at {seq} is no JSON") from None
    if not isinstance(record, dict):
        raise FoldError(f"the entry at {seq} is no JSON object")
    content = _content_hash(headers, record)
    if "id" not in record or "ts" not in record:
        record.setdefault("id", headers.get(h.ENTRY_ID) or entry_id_at(seq))
        record.setdefault("ts", format_ms(published_ms))
    _believe_subject(seq, subject, record)
    record = upcast(record)
    entry = plain_entry(record)
    if entry is None:
        try:
            entry = JournalEntry.model_validate(record)
        except ValidationError as error:
            fields = "; ".join(f"{p.field}: {p.problem}" for p in problems_of(error)[:5])
            raise FoldError(f"the entry at {seq} is not valid: {fields}") from None
    control = subject.family is Family.CONTROL
    if not control and (entry.priority is not Priority.NORMAL or is_control_type(entry.entry_type)):
        raise FoldError(f"the entry at {seq} needs the service's authority: control type or priority")
    return EntryRecorded(
        seq,
        entry,
        to_ms(entry.ts),
        control,
        identity_key(entry.workspace_id, entry.id),
        content,
        published_ms,
        len(body),
    )


def _believe_subject(seq: int, subject: Subject, record: dict[str, Any]) -> None:
    """Fill in what the body leaves out, refuse where it disagrees."""
    says = record.setdefault("workspace_id", subject.workspace)
    if says != subject.workspace:
        raise FoldError(f"the entry at {seq} names another workspace than its subject", field="workspace_id")
    if record.setdefault("entry_type", subject.kind) != subject.kind:
        raise FoldError(f"the entry at {seq} names another type than its subject", field="entry_type")
    if subject.family is Family.CONTROL:
        return
    for name, value in (("crew_id", subject.crew), ("agent_id", subject.agent)):
        if value is not None:
            if record.setdefault(name, value) != value:
                raise FoldError(f"the entry at {seq} names another {name} than its subject", field=name)
        elif record.get(name):
            raise FoldError(f"the entry at {seq} names a {name} its subject does not", field=name)


def _content_hash(headers: Mapping[str, str], record: dict[str, Any]) -> bytes:
    sent = headers.get(h.CONTENT_HASH)
    if sent is not None and len(sent) == 2 * _CONTENT_BYTES:
        try:
            content = bytes.fromhex(sent)
        except ValueError:
            content = b""
        if len(content) == _CONTENT_BYTES:  # fromhex passes over blanks, and the identity index needs exactly 16 bytes
            return content
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(canonical.encode(errors="surrogatepass"), digest_size=_CONTENT_BYTES).digest()
