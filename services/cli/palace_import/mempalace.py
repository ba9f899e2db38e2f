"""Reads a MemPalace store: drawers from Chroma's SQLite file, facts from its knowledge graph, and ``tunnels.json``.

Chroma keeps texts and metadata in ``chroma.sqlite3`` (tables ``collections``, ``segments``, ``embeddings`` and
``embedding_metadata``); the vectors beside it are not read, because drawers are embedded here by the model in use.

Invariant: files are opened for reading only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final

from ....schemas.errors import InvalidFile
from ....schemas.rules.palace.places import DIARY, agent_slug
from ..foreign_files import file_at, shown
from ..foreign_json import TEXT, ValuePlace, values_of
from .source import PalaceSource, utc

CHROMA: Final = "chroma.sqlite3"
_COLLECTION: Final = "mempalace_drawers"
_KNOWLEDGE: Final = "knowledge_graph.sqlite3"
_TUNNELS: Final = "tunnels.json"
_TEXT: Final = "chroma:document"
_REGISTRY: Final = "registry"
"""``ingest_mode`` of rows that only say that a file was read."""
MAX_ROWS: Final = 2_000_000
"""Rows of one table: ten for each of 200,000 drawers, of which a workspace holds 10,000."""
MAX_STEPS: Final = 20_000
"""Times 100,000 steps of SQLite's machine for one query; a million rows take 2,000."""
_STEPS_AT_ONCE: Final = 100_000
_MAX_VALUE_BYTES: Final = 16 << 20
_PLACE: Final = {"wing": TEXT, "room": TEXT, "drawer_id": TEXT}
_TUNNEL: Final = {"source": _PLACE, "target": _PLACE, "label": TEXT}
_DRAWERS: Final = """SELECT CAST(stored.embedding_id AS TEXT), CAST(said.key AS TEXT),
        coalesce(CAST(said.string_value AS TEXT), CAST(said.int_value AS TEXT), CAST(said.float_value AS TEXT))
    FROM collections JOIN segments ON segments.collection = collections.id AND segments.scope = 'METADATA'
        JOIN embeddings AS stored ON stored.segment_id = segments.id
        JOIN embedding_metadata AS said ON said.id = stored.id
    WHERE collections.name = ? ORDER BY stored.id"""
_FACTS: Final = """SELECT triples.*, one.name AS subject_name, one.type AS subject_type, other.name AS object_name,
        other.type AS object_type
    FROM triples LEFT JOIN entities AS one ON one.id = triples.subject
        LEFT JOIN entities AS other ON other.id = triples.object ORDER BY triples.extracted_at, triples.id"""


def palace_folder(path: Path) -> Path | None:
    """The folder of a MemPalace store at ``path`` or in its folder ``palace``; None if there is none."""
    return next((folder for folder in (path, path / "palace") if (folder / CHROMA).is_file()), None)


def read_mempalace(folder: Path) -> PalaceSource:
    """The store in a folder.

    Raises:
        InvalidFile: If a file is not what MemPalace writes.
    """
    source = PalaceSource(shown(f"mempalace:{folder.resolve()}"))
    for name, metadata in _metadata(folder / CHROMA):
        if metadata.get("ingest_mode") == _REGISTRY:
            source.left_out["rows that only say that a file was read"] += 1
        elif not metadata.get(_TEXT, "").strip():
            source.left_out["drawers without a text"] += 1
        else:
            source.add(_drawer(name, metadata))
    for file in (folder / _KNOWLEDGE, folder.parent / _KNOWLEDGE):
        if file.is_file():
            try:
                for row in _rows(file, _FACTS):
                    source.add_fact(_fact(row))
            except KeyError as error:
                raise _unreadable(file, f"its facts have no column {error}") from None
            break
    _read_tunnels(folder.parent / _TUNNELS, source)
    return source


def _metadata(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Id and metadata of each drawer."""
    by_name: dict[str, dict[str, str]] = {}
    for name, key, value in _rows(file, _DRAWERS, _COLLECTION):
        if name and key and value is not None:
            by_name.setdefault(name, {})[key] = value
    yield from by_name.items()


def _drawer(name: str, metadata: dict[str, str]) -> dict[str, Any]:
    drawer = {
        "drawer_id": name,
        "wing": metadata.get("wing") or "general",
        "room": metadata.get("room") or "general",
        "hall": metadata.get("hall") or "",
        "content": metadata[_TEXT],
        "source_file": (metadata.get("source_file") or "")[-512:],
        "added_by": metadata.get("added_by") or metadata.get("agent") or "mempalace",
        "filed_at": utc(metadata.get("filed_at")),
    }
    if metadata.get("type") != "diary_entry":
        return drawer
    hall = agent_slug(metadata.get("agent") or "mempalace")
    return {**drawer, "wing": DIARY, "room": metadata.get("topic") or DIARY, "hall": hall, "memory_type": DIARY}


def _fact(row: sqlite3.Row) -> dict[str, Any]:
    given = dict(row)
    types = {name: given[name] for name in ("subject_type", "object_type") if given[name] not in (None, "", "unknown")}
    return {
        "subject": given["subject_name"] or given["subject"],
        "predicate": given["predicate"],
        "object": given["object_name"] or given["object"],
        "valid_from": given["valid_from"] or None,
        "valid_to": given["valid_to"] or None,
        "confidence": given["confidence"],
        "source_closet": given.get("source_drawer_id") or None,
        **types,
    }


def _read_tunnels(file: Path, source: PalaceSource) -> None:
    if not file.exists():
        return
    place = ValuePlace()
    rooms = {(drawer.wing, drawer.room) for drawer in source.drawers.values()}
    for record in values_of(file_at(file, follow=False), place, _TUNNEL):
        try:
            ends = {"source": record["source"], "target": record["target"]}
            places = {name: (end["wing"], end["room"]) for name, end in ends.items()}
        except (KeyError, TypeError):
            raise _unreadable(file, "a tunnel needs source and target, each with wing and room") from None
        if not all(end in rooms for end in places.values()):
            source.left_out["tunnels to rooms without drawers"] += 1
            continue
        tunnel = {f"{name}_{part}": end[part] for name, end in ends.items() for part in ("wing", "room")}
        named = {
            f"{name}_drawer_id": end["drawer_id"]
            for name, end in ends.items()
            if end.get("drawer_id") in source.drawers
        }
        source.tunnels.append({**tunnel, **named, "label": (record.get("label") or "")[:256]})


def _rows(file: Path, sql: str, *params: str) -> Iterator[sqlite3.Row]:
    """The rows of a query on tables, not on views: a view may compute for ever."""
    file_at(file, follow=False)
    steps = count(1)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            opened.row_factory = sqlite3.Row
            opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
            opened.set_progress_handler(lambda: next(steps) > MAX_STEPS, _STEPS_AT_ONCE)
            opened.execute("PRAGMA trusted_schema = OFF")
            if view := opened.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchone():
                raise _unreadable(file, f"it has a view, {view[0]}, which MemPalace does not make")
            for number, row in enumerate(opened.execute(sql, params)):
                if number >= MAX_ROWS:
                    raise _unreadable(file, f"it has more than {MAX_ROWS:,} rows")
                yield row
    except sqlite3.Error as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: object) -> InvalidFile:
    return InvalidFile(f"{shown(str(file))} cannot be read: {error}", hint="name the folder of a MemPalace store")
