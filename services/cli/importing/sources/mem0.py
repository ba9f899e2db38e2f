"""Memories of mem0, as ``get_all`` returns them or an export holds them: ``{"results": [{"id", "memory", …}]}``.

A memory that mem0 has changed since an earlier import becomes a new entry, which does not supersede the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ....client.project import slug
from ...foreign_json import NAME, Shape
from .found import Notes, Record, objects, statement, values

SOURCE = "mem0"
_MEMORY = dict.fromkeys(("id", "memory", "text", "data", "agent_id", "user_id"), NAME)
_PAGE: Shape = {"results": [_MEMORY], "memories": [_MEMORY], **_MEMORY}
_KEPT = ("user_id", "run_id", "app_id", "categories")


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """Each memory; ``user_id`` becomes the person whose data it is."""
    for value in values(path, notes, _PAGE):
        page = objects(value.get("results") or value.get("memories") or [value]) if isinstance(value, dict) else []
        for record in page:
            text = str(record.get("memory") or record.get("text") or record.get("data") or "").strip()
            if not text:
                notes.skip("without text")
                continue
            kept = {name: record.get(name) or None for name in _KEPT}
            entry = statement(
                SOURCE, text, notes, named=str(record.get("id") or ""), at=record.get("created_at"), **kept
            )
            if record.get("agent_id"):
                entry["agent_id"] = slug(str(record["agent_id"]))
            if record.get("user_id"):
                entry["data_subject_id"] = " ".join(str(record["user_id"]).split())[:128]
            yield entry
