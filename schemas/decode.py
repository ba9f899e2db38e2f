"""A message of JOURNAL → an event, once, for live feed and bulk replay alike.

Invariant: pure and deterministic; whatever is wrong with a message is a ``FoldError`` (it is parked), never another
exception. A message on ``journal.`` is trusted for nothing but its subject: what its body says of workspace, crew,
agent and type must agree, and it may hold no control type and no priority but ``normal`` (the service publishes those
on ``control.``, where agents may not). Fields it does not know are ignored, in entries and in payloads: an older node
folds what a newer one wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from .catalogue import is_control_type
from .entry import MAX_ENTRY_BYTES, JournalEntry, Priority, problems_of
from .errors import FoldError
from .events import headers as h
from .events.derived import decode_link, decode_vector
from .events.documents import decode_document
from .events.envelope import EntryRecorded, Event, UnknownDerived
from .events.token_bits import decode_token_bits
from .ids import entry_id_at, identity_key, is_service_id
from .plain import plain_entry
from .subjects import DerivedKind, Family, Subject, parse_subject
from .timestamps import format_ms, to_ms
from .upcasters import upcast

_NO_HEADERS: Final[Mapping[str, str]] = {}
_CONTENT_BYTES: Final = 16
_JOURNAL: Final = Family.JOURNAL  # members of an enum are slow to look up, and every message asks
_CONTROL: Final = Family.CONTROL
_NORMAL: Final = Priority.NORMAL
_is_control_type: Final = lru_cache(maxsize=4_096)(is_control_type)


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
    family = parsed.family
    known = _NO_HEADERS if headers is None else headers
    if family is _JOURNAL or family is _CONTROL:
        return _entry(seq, parsed, known, body, published_ms)
    if family is Family.DOCUMENT:
        return decode_document(seq, parsed, body, published_ms)
    if parsed.kind == DerivedKind.VECTOR:
        return decode_vector(seq, parsed.workspace, known, body, published_ms)
    if parsed.kind == DerivedKind.LINK:
        return decode_link(seq, parsed.workspace, known, body, published_ms)
    if parsed.kind == DerivedKind.TOKEN_BITS:
        return decode_token_bits(seq, parsed.workspace, known, body, published_ms)
    return UnknownDerived(seq, parsed.workspace, parsed.kind)


def _entry(seq: int, subject: Subject, headers: Mapping[str, str], body: bytes, published_ms: int) -> EntryRecorded:
    if len(body) > MAX_ENTRY_BYTES:
        raise FoldError(f"the entry at {seq} has {len(body)} bytes, more than {MAX_ENTRY_BYTES}")
    try:
        record = from_json(body, allow_inf_nan=False, cache_strings="keys")  # values differ: keeping them costs 0.5 µs
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
            entry = JournalEntry.model_validate(record, extra="ignore")  # a newer version may have written more
        except ValidationError as error:
            fields = "; ".join(f"{p.field}: {p.problem}" for p in problems_of(error)[:5])
            raise FoldError(f"the entry at {seq} is not valid: {fields}") from None
    control = subject.family is _CONTROL
    if not control and (entry.priority is not _NORMAL or _is_control_type(entry.entry_type)):
        raise FoldError(f"the entry at {seq} needs the service's authority: control type or priority")
    if not control and is_service_id(entry.id):
        raise FoldError(f"the entry at {seq} has an id of the form that only the service derives", field="id")
    return EntryRecorded(
        seq,
        entry,
        to_ms(entry.ts),
        control,
        identity_key(subject.workspace, entry.id),
        content,
        published_ms,
        len(body),
    )


def _believe_subject(seq: int, subject: Subject, record: dict[str, Any]) -> None:
    """Fill in what the body leaves out, refuse where it disagrees."""
    fill = record.setdefault
    if fill("workspace_id", subject.workspace) != subject.workspace:
        raise FoldError(f"the entry at {seq} names another workspace than its subject", field="workspace_id")
    if fill("entry_type", subject.kind) != subject.kind:
        raise FoldError(f"the entry at {seq} names another type than its subject", field="entry_type")
    if subject.family is _CONTROL:
        return
    crew, agent = subject.crew, subject.agent
    if record.get("crew_id") if crew is None else fill("crew_id", crew) != crew:
        raise _disagrees(seq, "crew_id", crew)
    if record.get("agent_id") if agent is None else fill("agent_id", agent) != agent:
        raise _disagrees(seq, "agent_id", agent)


def _disagrees(seq: int, name: str, value: str | None) -> FoldError:
    if value is None:
        return FoldError(f"the entry at {seq} names a {name} its subject does not", field=name)
    return FoldError(f"the entry at {seq} names another {name} than its subject", field=name)


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
