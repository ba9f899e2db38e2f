"""Converts stored rows and committed events to the JSON object of an entry.

Invariant: rows and events give the same object: all fields of an entry (null if absent), ``seq``, ``live_priority`` and
``standing`` (for rows, ``add_marks`` sets these two). Only an archived entry has ``archived``, ``bucket_id`` and
``original_bytes``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import ViewsBehind
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import format_ms, format_ts, parse_ts, to_ms
from ...schemas.entries.rules import PAYLOAD_CHARS, author_of
from ...schemas.entries.tables import ARCHIVED, ENTRIES, ENTRIES_PROJECTION, ENTRY_COLUMNS
from ...schemas.relations.rules import CONTRADICTS, SUPERSEDES, Sphere
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.tables import (
    LIVE_PRIORITIES,
    RETRACTIONS,
    STANDINGS_PROJECTION,
    SUPERSESSIONS,
    RetractionRow,
    SupersessionRow,
)
from ..index.standings import Replacement, StandingFacts, StandingSubject, supersedes
from .filters import Condition, Cursor

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
    """A stored payload as JSON text; a payload that the archive has truncated is wrapped."""
    if bucket_id is None or len(text) < PAYLOAD_CHARS:
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # a truncated object is not valid JSON
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


# Adds to stored entries their live priority and whether they count now.


_AMONG: Final = "IN (SELECT unnest(?::VARCHAR[]))"
_LIVE: Final = (
    f"SELECT entry_id, priority FROM {LIVE_PRIORITIES} WHERE workspace_id = ? AND {PRESENT} AND entry_id {_AMONG}"
)
_SUPERSEDED: Final = f"SELECT {SUPERSESSIONS.names} FROM {SUPERSESSIONS} WHERE workspace_id = ? AND target_id {_AMONG}"
_RETRACTED: Final = (
    f"SELECT {RETRACTIONS.names} FROM {RETRACTIONS} WHERE workspace_id = ? AND {PRESENT} AND target_id {_AMONG}"
)
_SUBJECT: Final = """other.id, other.seq, other.agent_id, coalesce(other.valid_ms, other.ts_ms), other.actor_type,
        other.actor_id, other.mission_id, other.data_subject_id, other.trace_id"""
_OTHER: Final = f"""SELECT edge.here, edge.state, edge.reason, edge.seq, {_SUBJECT}
    FROM (SELECT src_entry_id AS here, dst_seq AS there, * FROM {RELATIONS}
        UNION ALL SELECT dst_entry_id AS here, src_seq AS there, * FROM {RELATIONS}) AS edge
    JOIN {ENTRIES} AS other ON other.seq = edge.there
    WHERE edge.workspace_id = ? AND edge.relation = '{CONTRADICTS}' AND edge.here {_AMONG}"""
_NEWER: Final = f"""SELECT edge.dst_entry_id, edge.state, edge.reason, edge.since_ms, edge.seq, {_SUBJECT}
    FROM {RELATIONS} AS edge JOIN {ENTRIES} AS other ON other.seq = edge.src_seq
    WHERE edge.workspace_id = ? AND edge.relation = '{SUPERSEDES}' AND edge.dst_entry_id {_AMONG}"""


def live_priority_condition(workspace_id: str, priorities: Sequence[str]) -> Condition:
    """Condition that the live priority of an entry is one of some."""
    changed = f"SELECT entry_id FROM {LIVE_PRIORITIES} WHERE workspace_id = ? AND {PRESENT}"
    wanted = f"({', '.join('?' * len(priorities))})"
    return Condition(
        f"(id IN ({changed} AND priority IN {wanted}) OR priority IN {wanted} AND id NOT IN ({changed}))",
        (workspace_id, *priorities, *priorities, workspace_id),
    )


def add_marks(views: ViewReader, entries: Sequence[StoredEntry]) -> None:
    """Set ``live_priority`` and ``standing`` in the records of entries of one workspace; blocking.

    Args:
        views: The views.
        entries: The entries.
    """
    if not entries:
        return
    workspace = entries[0].record["workspace_id"]

    def rows(sql: str, ids: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        return views.rows(sql, [workspace, ids])

    ids = [entry.id for entry in entries]
    live = dict(rows(_LIVE, ids))
    facts = StandingFacts()
    about = list(ids)
    subjects = {entry.id: _subject(entry) for entry in entries}
    for row in rows(_SUPERSEDED, ids):
        facts.supersede(SupersessionRow(*row))
        about.append(SupersessionRow(*row).by_id)
    for here, state, reason, seq, *other in rows(_OTHER, ids):
        subject = _other(*other)
        facts.contradict(subjects[here], subject, state, reason, seq)
        about.append(subject.entry_id)
    for here, state, reason, since_ms, seq, *other in rows(_NEWER, ids):
        newer = _other(*other)
        from_ms = newer.holds_ms if since_ms is None else max(since_ms, newer.holds_ms)
        facts.replace(subjects[here], Replacement(newer, state, reason, from_ms, seq))
        about.append(newer.entry_id)
    for row in rows(_RETRACTED, about):
        facts.retract(RetractionRow(*row))
    for entry in entries:
        standing = facts.standing(subjects[entry.id])
        entry.record["live_priority"] = live.get(entry.id, entry.record["priority"])
        entry.record["standing"] = None if standing is None else standing.model_dump(mode="json")


def _other(
    entry_id: str, seq: int, agent_id: str | None, holds_ms: int, actor: str, actor_id: str | None, *sphere: str | None
) -> StandingSubject:
    """Build the other entry from the columns of ``_SUBJECT``."""
    return StandingSubject(entry_id, seq, agent_id, holds_ms, author_of(actor, actor_id), Sphere(*sphere))


def _subject(entry: StoredEntry) -> StandingSubject:
    valid_at = entry.record["valid_at"]
    holds_ms = entry.ts_ms if valid_at is None else to_ms(parse_ts(valid_at))
    author = author_of(entry.record["actor_type"], entry.record["actor_id"])
    sphere = Sphere(*(entry.record[name] for name in Sphere._fields))
    return StandingSubject(entry.id, entry.seq, entry.record["agent_id"], holds_ms, author, sphere)


# Finds entries that a new entry names in ``supersedes`` but is not allowed to supersede.


WAIT_S: Final = 1.0
"""Seconds that an append waits for its entry in the views; without it, there is no warning."""
IDS_NAMED: Final = 10
"""Maximum ids in a warning, so that the warnings of a batch fit into one answer over NATS."""
_NAMED: Final = f"""SELECT {", ".join(f"named.{column.name}" for column in SUPERSESSIONS.columns)},
        entry.seq, entry.agent_id, entry.actor_type, entry.actor_id
    FROM {SUPERSESSIONS} AS named
    LEFT JOIN {ENTRIES} AS entry ON entry.workspace_id = named.workspace_id AND entry.id = named.target_id
    WHERE named.by_seq IN (SELECT unnest(?::UBIGINT[])) ORDER BY named.by_seq, named.target_id"""


class SupersedingCheck:
    """Looks entries up in the views."""

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    async def __call__(self, seqs: Sequence[int]) -> Mapping[int, str]:
        """Sequence → warning, for new entries that name an entry that they do not supersede.

        Args:
            seqs: Entries that were just appended, all with ``supersedes``; at least one.
        """
        try:
            await self._views.wait_for(max(seqs), WAIT_S, ENTRIES_PROJECTION, STANDINGS_PROJECTION)
        except ViewsBehind:
            return {}
        rows = await asyncio.to_thread(self._views.rows, _NAMED, [list(seqs)])
        vain = [SupersessionRow(*row[:-4]) for row in rows if not _counts(SupersessionRow(*row[:-4]), *row[-4:])]
        return {
            seq: _warning([vain_one.target_id for vain_one in named])
            for seq, named in groupby(vain, key=lambda vain_one: vain_one.by_seq)
        }


def _counts(row: SupersessionRow, seq: int | None, agent_id: str | None, actor: str, actor_id: str | None) -> bool:
    return seq is not None and supersedes(
        row, StandingSubject(row.target_id, seq, agent_id, 0, author_of(actor, actor_id))
    )


def _warning(ids: Sequence[str]) -> str:
    named = ", ".join(ids[:IDS_NAMED]) + (" …" if len(ids) > IDS_NAMED else "")
    return (
        f"supersedes: {named} still count{'s' if len(ids) == 1 else ''}: no such earlier entry of this agent and actor; "
        "check the id, or ask a LEAD or an operator to retract the entry"
    )
