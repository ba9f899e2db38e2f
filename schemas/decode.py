"""Decodes a message of JOURNAL into an event; used by the live feed and by bulk replay.

Invariant: pure and deterministic; every fault of a message is a ``FoldError``. For a message on ``journal.``,
workspace, crew, agent and type come from the subject: the body must agree with the subject, and must not have a control
type or a priority other than ``normal``. Unknown fields are ignored, so that an older node can fold messages of a newer
node.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .catalogue import is_control_type
from .core import headers as h
from .core.derived import decode_link, decode_vector
from .core.entry import MAX_ENTRY_BYTES, ActorType, JournalEntry, Priority, problems_of
from .core.envelope import EntryRecorded, Event, UnknownDerived
from .core.errors import FoldError
from .core.ids import entry_id_at, identity_key, is_service_id
from .core.plain_entry import plain_entry
from .core.principal import publisher_in
from .core.subjects import DerivedKind, Family, Subject, parse_subject
from .core.timestamps import format_ms, to_ms
from .documents.events import decode_document
from .models.events import decode_chunk_vector, decode_token_bits

# Upcasters convert stored records to the newest version of their payload, before validation.


_whole: Final = TypeAdapter(int).validate_python
Record = dict[str, Any]
Upcaster = Callable[[Record], Record]

UPCASTERS: Final[dict[tuple[str, int], Upcaster]] = {}
"""``(entry_type, stored version)`` → function to version + 1. ``tests/golden`` tests each function on stored bytes."""


def upcaster(entry_type: str, version: int) -> Callable[[Upcaster], Upcaster]:
    """Register a function that converts ``entry_type`` from ``version`` to ``version + 1``."""

    def register(function: Upcaster) -> Upcaster:
        if (entry_type, version) in UPCASTERS:
            raise ValueError(f"two upcasters for {entry_type} version {version}")
        UPCASTERS[(entry_type, version)] = function
        return function

    return register


def upcast(record: Record, chain: Mapping[tuple[str, int], Upcaster] = UPCASTERS) -> Record:
    """The record, converted to the newest version that ``chain`` has for its type.

    ``entry_type`` does not change; each step increments ``schema_version``. A record whose version is not a number is
    returned unchanged; validation refuses it.
    """
    if not chain:
        return record
    entry_type = record.get("entry_type")
    try:
        version = _whole(record.get("schema_version", 1))
    except ValidationError:
        return record
    while isinstance(entry_type, str) and (step := chain.get((entry_type, version))) is not None:
        version += 1
        record = {**step(record), "entry_type": entry_type, "schema_version": version}
    return record


_NO_HEADERS: Final[Mapping[str, str]] = {}
_CONTENT_BYTES: Final = 16
_JOURNAL: Final = Family.JOURNAL  # attribute access on an enum is slow, and this runs for every message
_CONTROL: Final = Family.CONTROL
_NORMAL: Final = Priority.NORMAL
_USER: Final = ActorType.USER
_is_control_type: Final = lru_cache(maxsize=4_096)(is_control_type)


def decode(seq: int, subject: str, headers: Mapping[str, str] | None, body: bytes, published_ms: int) -> Event:
    """The event of one message.

    Raises:
        FoldError: If the message is malformed; the error names the fault without quoting the message.
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
    if parsed.kind == DerivedKind.CHUNK_VECTOR:
        return decode_chunk_vector(seq, parsed.workspace, known, body, published_ms)
    return UnknownDerived(seq, parsed.workspace, parsed.kind)


def _entry(seq: int, subject: Subject, headers: Mapping[str, str], body: bytes, published_ms: int) -> EntryRecorded:
    if len(body) > MAX_ENTRY_BYTES:
        raise FoldError(f"the entry at {seq} has {len(body)} bytes, more than {MAX_ENTRY_BYTES}")
    try:
        record = from_json(body, allow_inf_nan=False, cache_strings="keys")  # caching values as well costs 0.5 µs
    except ValueError:
        raise FoldError(f"the entry at {seq} is not JSON") from None
    if not isinstance(record, dict):
        raise FoldError(f"the entry at {seq} is not a JSON object")
    content = _content_hash(headers, record)
    if "id" not in record or "ts" not in record:
        record.setdefault("id", headers.get(h.ENTRY_ID) or entry_id_at(seq))
        record.setdefault("ts", format_ms(published_ms))
    _believe_subject(seq, subject, record)
    record = upcast(record)
    entry = plain_entry(record)
    if entry is None:
        try:
            entry = JournalEntry.model_validate(
                record, extra="ignore"
            )  # a newer version may have written further fields
        except ValidationError as error:
            fields = "; ".join(map(str, problems_of(error)[:5]))
            raise FoldError(f"the entry at {seq} is not valid: {fields}") from None
    control = subject.family is _CONTROL
    if not control and (entry.priority is not _NORMAL or _is_control_type(entry.entry_type)):
        raise FoldError(f"the entry at {seq} has a control type or a priority, which only the service may publish")
    if not control and is_service_id(entry.id):
        raise FoldError(f"the entry at {seq} has an id of the form that is reserved for derived ids", field="id")
    return EntryRecorded(
        seq,
        entry,
        to_ms(entry.ts),
        control,
        identity_key(subject.workspace, entry.id),
        content,
        published_ms,
        len(body),
        publisher_in(headers.get(h.PUBLISHER)),
        entry.actor_type is _USER and headers.get(h.ACTOR_VOUCHED) == h.VOUCHED,
    )


def _believe_subject(seq: int, subject: Subject, record: dict[str, Any]) -> None:
    """Fill in the fields that the body leaves out; raise ``FoldError`` if body and subject differ."""
    fill = record.setdefault
    if fill("workspace_id", subject.workspace) != subject.workspace:
        raise FoldError(
            f"the workspace in the body of the entry at {seq} differs from its subject", field="workspace_id"
        )
    if fill("entry_type", subject.kind) != subject.kind:
        raise FoldError(f"the type in the body of the entry at {seq} differs from its subject", field="entry_type")
    if subject.family is _CONTROL:
        return
    crew, agent = subject.crew, subject.agent
    if record.get("crew_id") if crew is None else fill("crew_id", crew) != crew:
        raise _disagrees(seq, "crew_id", crew)
    if record.get("agent_id") if agent is None else fill("agent_id", agent) != agent:
        raise _disagrees(seq, "agent_id", agent)


def _disagrees(seq: int, name: str, value: str | None) -> FoldError:
    if value is None:
        return FoldError(f"the entry at {seq} has a {name}, its subject has none", field=name)
    return FoldError(f"the {name} in the body of the entry at {seq} differs from its subject", field=name)


def _content_hash(headers: Mapping[str, str], record: dict[str, Any]) -> bytes:
    sent = headers.get(h.CONTENT_HASH)
    if sent is not None and len(sent) == 2 * _CONTENT_BYTES:
        try:
            content = bytes.fromhex(sent)
        except ValueError:
            content = b""
        if len(content) == _CONTENT_BYTES:  # fromhex skips blanks, and the identity index needs exactly 16 bytes
            return content
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(canonical.encode(errors="surrogatepass"), digest_size=_CONTENT_BYTES).digest()
