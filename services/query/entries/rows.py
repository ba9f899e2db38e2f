"""Converts stored rows and committed events to the JSON object of an entry.

Invariant: both give the same object: every field of an entry (null if absent), ``seq``, and of an entry that was just
published ``live_priority`` and ``standing`` (``marks`` sets them for stored rows). Only an archived entry has ``archived``,
``bucket_id`` and ``original_bytes``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ....schemas.events.envelope import EntryRecorded
from ....schemas.rules.compaction import PAYLOAD_CHARS
from ....schemas.timestamps import format_ms, format_ts
from ....schemas.views import ARCHIVED, ENTRIES, ENTRY_COLUMNS
from .cursor import Cursor

_COMMON: Final = ", ".join((*ENTRY_COLUMNS, "run_id"))
SELECT_LIST: Final = ", ".join((*ENTRY_COLUMNS, "bucket_id", "original_bytes"))
"""The columns that ``StoredEntry.of_row`` expects, of one of the two sources."""
JOURNAL_SOURCE: Final = (
    f"(SELECT {_COMMON}, NULL::VARCHAR AS bucket_id, NULL::INTEGER AS original_bytes FROM {ENTRIES})"
)
"""The entries that are not archived."""
ARCHIVE_SOURCE: Final = f"""(SELECT * FROM {JOURNAL_SOURCE}
    UNION ALL SELECT {_COMMON}, bucket_id, size AS original_bytes FROM {ARCHIVED})"""
"""All entries; ``bucket_id`` is NULL unless the entry is archived."""


def payload_json(text: str, bucket_id: str | None) -> str:
    """A stored payload as JSON text; one that the archive has cut is wrapped."""
    if bucket_id is None or len(text) < PAYLOAD_CHARS:
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # the beginning of an object is never an object
        return orjson.dumps({"truncated": text}).decode()
    return text


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with its sequence.

    Attributes:
        record: The JSON object; ``payload``, ``refs`` and ``supersedes`` may be ``orjson.Fragment``.
    """

    seq: int
    ts_ms: int
    record: dict[str, Any]

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> StoredEntry:
        """From a row selected with ``SELECT_LIST``; JSON columns are not parsed."""
        *fields, bucket_id, original_bytes = row
        record = dict(zip(ENTRY_COLUMNS, fields, strict=True))
        ts_ms = record.pop("ts_ms")
        record["ts"] = format_ms(ts_ms)
        record["payload"] = orjson.Fragment(payload_json(record["payload"], bucket_id))
        record["refs"] = orjson.Fragment(record["refs"])
        record["supersedes"] = orjson.Fragment(record["supersedes"])
        valid_ms = record.pop("valid_ms")
        record["valid_at"] = None if valid_ms is None else format_ms(valid_ms)
        if bucket_id is not None:
            record.update(archived=True, bucket_id=bucket_id, original_bytes=original_bytes)
        return cls(record["seq"], ts_ms, record)

    @classmethod
    def of_event(cls, event: EntryRecorded) -> StoredEntry:
        """From a committed event."""
        entry = event.entry
        return cls(
            event.seq,
            event.ts_ms,
            {
                "seq": event.seq,
                "id": entry.id,
                "workspace_id": entry.workspace_id,
                "crew_id": entry.crew_id,
                "agent_id": entry.agent_id,
                "mission_id": entry.mission_id,
                "trace_id": entry.trace_id,
                "span_id": entry.span_id,
                "entry_type": entry.entry_type,
                "severity": entry.severity.value,
                "priority": entry.priority.value,
                "actor_type": entry.actor_type.value,
                "actor_id": entry.actor_id,
                "summary": entry.summary,
                "payload": entry.payload,
                "refs": entry.refs,
                "data_subject_id": entry.data_subject_id,
                "supersedes": entry.supersedes,
                "valid_at": None if entry.valid_at is None else format_ts(entry.valid_at),
                "schema_version": entry.schema_version,
                "ts": format_ms(event.ts_ms),
                "live_priority": entry.priority.value,
                "standing": None,
            },
        )

    @property
    def id(self) -> str:
        """The entry's id."""
        return str(self.record["id"])

    @property
    def cursor(self) -> Cursor:
        """The cursor for the page after it."""
        return Cursor(self.ts_ms, self.id)

    def to_json(self) -> bytes:
        """The record as JSON."""
        try:
            return orjson.dumps(self.record)
        except TypeError:  # orjson cannot write integers above 64 bits; a row has them as text
            return json.dumps(self.record, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class EntryPage:
    """One page of a listing.

    Attributes:
        next_cursor: Cursor of the next page; None unless this page is full.
    """

    entries: tuple[StoredEntry, ...]
    next_cursor: Cursor | None
    view_seq: int


@dataclass(frozen=True, slots=True)
class EntryCount:
    """Number of matching entries, and the sequence of the views."""

    count: int
    view_seq: int


@dataclass(frozen=True, slots=True)
class EntryFound:
    """One entry, and the sequence of the views when it was read."""

    entry: StoredEntry
    view_seq: int
