"""Caches the fields that a hit needs, for the newest entries, so that most recalls do not query the database.

Fetching ten rows by sequence costs 2 to 4 ms in DuckDB, more than the search. Entries never change, so a copy is never
stale. Invariant: a record is the same whether it comes from a commit, a load or the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json

from ...schemas.core.timestamps import format_ms
from ...schemas.entries.tables import ENTRIES
from .arrays import GrowableArray
from .arrow import Found, joined, kept, sequences
from .documents import EntryColumns

_FIELDS: Final = (
    "id",
    "entry_type",
    "summary",
    "agent_id",
    "crew_id",
    "actor_type",
    "actor_id",
    "severity",
    "priority",
    "trace_id",
    "mission_id",
    "payload",
    "refs",
    "supersedes",
    "valid_ms",
)
RECORD_COLUMNS: Final = ("seq", *_FIELDS)
_SEPARATOR: Final = "\x1e"
"""Record separator; never part of an id, a name, JSON text or a normalised summary."""
RECORD_SQL: Final = "concat_ws(chr(30), " + ", ".join(f"coalesce({name}::VARCHAR, '')" for name in _FIELDS) + ")"
"""The record of a row of ``journal_entries``."""
FETCH_SQL: Final = f"""SELECT seq, {RECORD_SQL} FROM (SELECT unnest(?::UBIGINT[]) AS wanted)
    JOIN {ENTRIES} ON seq = wanted WHERE workspace_id = ?"""
"""Records by sequence; a join with the list is ten times as fast as IN, which reads every row."""


class HitRecord(NamedTuple):
    """Fields of an entry that a hit contains, under the same names."""

    entry_id: str
    entry_type: str
    summary: str
    agent_id: str | None
    crew_id: str | None
    actor_type: str
    actor_id: str | None
    severity: str
    priority: str
    trace_id: str | None
    mission_id: str | None
    payload: dict[str, Any]
    refs: dict[str, Any]
    supersedes: tuple[str, ...]
    valid_at: str | None

    @classmethod
    def parse(cls, text: str) -> HitRecord:
        """Parse the joined fields."""
        parts = text.split(_SEPARATOR)
        return cls(
            parts[0],
            parts[1],
            parts[2],
            parts[3] or None,
            parts[4] or None,
            parts[5],
            parts[6] or None,
            parts[7],
            parts[8],
            parts[9] or None,
            parts[10] or None,
            _object(parts[11]),
            _object(parts[12]),
            tuple(from_json(parts[13])) if parts[13] != "[]" else (),
            format_ms(int(parts[14])) if parts[14] else None,
        )


def _object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = from_json(text) if text != "{}" else {}  # keeps integers above 64 bits, unlike orjson
    return value


def append_records(records: Records, documents: EntryColumns, hit: Found | None) -> None:
    """Append the records of documents that have none yet, from rows of ``journal_entries`` in order of ``seq``.

    Args:
        records: The records.
        documents: The index's documents.
        hit: ``RECORD_COLUMNS`` of the rows; noise may be among them.
    """
    if hit is None:
        return
    hit = kept(hit, documents.local(sequences(hit, "seq")) >= records.end)
    texts = joined(hit, _FIELDS, _SEPARATOR)
    records.append(texts.data, texts.ends)


class Records:
    """Records of the documents from ``first`` on.

    Args:
        cap_bytes: Most bytes of text; beyond it the older half is dropped.
    """

    def __init__(self, cap_bytes: int) -> None:
        self._cap = cap_bytes
        self._first = 0
        self._data = GrowableArray(np.uint8)
        self._ends = GrowableArray(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._data.nbytes + self._ends.nbytes

    @property
    def cap_bytes(self) -> int:
        """Most bytes of text."""
        return self._cap

    @property
    def end(self) -> int:
        """The document whose record is appended next."""
        return self._first + len(self._ends)

    def start_at(self, first: int) -> None:
        """Drop all records; the next one is that of document ``first``."""
        self._first = first
        self._data, self._ends = GrowableArray(np.uint8), GrowableArray(np.int64)

    def append(self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        """Append records: record ``i`` is ``data[ends[i - 1] : ends[i]]``."""
        base = len(self._data)
        self._data.append(data)
        self._ends.append(ends + base)
        if len(self._data) > self._cap:
            self._drop_older_half()

    def get(self, doc: int) -> HitRecord | None:
        """The record of a document, or None."""
        return self.of([doc])[0]

    def of(self, docs: Sequence[int]) -> list[HitRecord | None]:
        """The record of each document, or None."""
        data, ends, first = self._data.rows.data, self._ends.rows, self._first
        records: list[HitRecord | None] = []
        for doc in docs:
            place = doc - first
            if 0 <= place < len(ends):
                begin = ends.item(place - 1) if place else 0
                records.append(HitRecord.parse(str(data[begin : ends.item(place)], "utf-8")))
            else:
                records.append(None)
        return records

    def _drop_older_half(self) -> None:
        ends = self._ends.rows
        keep = min(int(ends.searchsorted(len(self._data) - self._cap // 2)) + 1, len(ends))
        cut = int(ends[keep - 1])
        data, later = self._data.rows[cut:].copy(), ends[keep:] - cut
        first = self._first + keep
        self.start_at(first)
        self._data.append(data)
        self._ends.append(later)
