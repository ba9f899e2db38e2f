"""``journal_entries``: every admitted entry as it is listed, counted and shown.

Invariant: one row an entry, appended in order of ``seq``; nothing here changes later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar, Final

import numpy as np
import orjson

from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.consumers.tokenise import DATE_TOKENS, batch_tokens
from crew_journal.schemas.rules.embed_policy import is_embedded
from crew_journal.schemas.views import ENTRIES, ENTRIES_PROJECTION

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {ENTRIES} (
    seq UBIGINT NOT NULL, id VARCHAR NOT NULL, workspace_id VARCHAR NOT NULL, crew_id VARCHAR, agent_id VARCHAR,
    mission_id VARCHAR, trace_id VARCHAR, span_id VARCHAR, ts_ms BIGINT NOT NULL, entry_type VARCHAR NOT NULL,
    severity VARCHAR NOT NULL, priority VARCHAR NOT NULL, actor_type VARCHAR NOT NULL, actor_id VARCHAR,
    summary VARCHAR NOT NULL, payload VARCHAR NOT NULL, refs VARCHAR NOT NULL, data_subject_id VARCHAR,
    schema_version INTEGER NOT NULL, run_id VARCHAR, control BOOLEAN NOT NULL, embeddable BOOLEAN NOT NULL,
    words INTEGER NOT NULL, published_ms BIGINT NOT NULL, size INTEGER NOT NULL)"""
_LIKE_FIELDS: Final = (
    "id",
    "workspace_id",
    "crew_id",
    "agent_id",
    "mission_id",
    "trace_id",
    "span_id",
    "entry_type",
    "actor_id",
    "summary",
    "data_subject_id",
    "schema_version",
)
"""Columns that hold the entry's field of the same name as it is."""
_ENUMS: Final = ("severity", "priority", "actor_type")
"""Columns that hold the value of the entry's field of the same name."""
_NAMES: Final = (*_LIKE_FIELDS, *_ENUMS)
_VALUES: Final = attrgetter(*_LIKE_FIELDS, *(f"{name}.value" for name in _ENUMS))
"""All of them in one pass over the entries."""


def json_text(value: Mapping[str, Any]) -> str:
    """``value`` as compact JSON; orjson knows no integer beyond 64 bits, JSON does."""
    if not value:
        return "{}"
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class EntriesProjection:
    """Folds entries into ``journal_entries``."""

    name: ClassVar[str] = ENTRIES_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (ENTRIES,)
    digest: ClassVar[Mapping[str, str]] = {}

    def prepare(self, batch: Batch) -> None:
        """Cut the batch's texts ahead of the transaction."""
        if batch.entries:
            batch_tokens(batch)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append the batch's entries."""
        events = batch.entries
        if not events:
            return
        entries = [event.entry for event in events]
        n = len(events)
        columns: dict[str, Any] = dict(zip(_NAMES, zip(*map(_VALUES, entries), strict=True), strict=True))
        columns["payload"] = [json_text(entry.payload) for entry in entries]
        columns["refs"] = [json_text(entry.refs) for entry in entries]
        run_ids = [entry.payload.get("run_id") for entry in entries]
        columns["run_id"] = [run_id if isinstance(run_id, str) else None for run_id in run_ids]
        columns["embeddable"] = [
            is_embedded(entry.entry_type, entry.severity, entry.payload, entry.refs) for entry in entries
        ]
        columns["seq"] = np.fromiter((event.seq for event in events), np.uint64, n)
        columns["control"] = [event.control for event in events]
        for name in ("ts_ms", "published_ms", "size"):
            columns[name] = np.fromiter((getattr(event, name) for event in events), np.int64, n)
        columns["words"] = batch_tokens(batch).counts - DATE_TOKENS
        tx.insert(ENTRIES, columns)


PROJECTION = EntriesProjection
