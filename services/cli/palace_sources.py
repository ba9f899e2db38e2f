"""Reads the sources of palace imports: drawers, facts and tunnels, with a count of omitted items.

Invariant: the same store gives the same drawers with the same ids, so a repeated import files nothing twice.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from ...schemas.core.errors import InvalidFile, NotFound
from ...schemas.core.timestamps import format_ts
from ...schemas.facts.operations import KgAddRequest
from ...schemas.palace.events import CONTENT_CHARS, PLACE_CHARS
from ...schemas.palace.operations import ImportedDrawer
from ...schemas.palace.rules import DIARY, agent_slug, drawer_id, is_noise
from .foreign_files import MAX_TEXT_BYTES, TEXT, ValuePlace, file_at, files_of, shown, values_of


@dataclass(slots=True)
class PalaceSource:
    """A store that was read.

    Attributes:
        name: The name with which its drawers are marked.
        drawers: By id, as the operation ``import_drawers`` takes them.
        facts: As the operation ``kg_add`` takes them.
        tunnels: As the operation ``create_tunnel`` takes them.
        left_out: Reason → number of drawers, facts and tunnels that are left out.
    """

    name: str
    drawers: dict[str, ImportedDrawer] = field(default_factory=dict)
    facts: list[KgAddRequest] = field(default_factory=list)
    tunnels: list[dict[str, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def leave_out(self, _inside: str, reason: str) -> None:
        """Count a file that is left out."""
        self.left_out[reason] += 1

    def add(self, drawer: Mapping[str, Any]) -> None:
        """Take in a drawer, in parts if it is longer than a drawer may be."""
        for number, part in enumerate(_parts(drawer["content"]), 1):
            name = drawer["drawer_id"] if number == 1 else f"{drawer['drawer_id']}_part{number}"
            try:
                self.drawers[name] = ImportedDrawer.model_validate({**drawer, "drawer_id": name, "content": part})
            except ValidationError as error:
                self.left_out[_reason("drawers", error)] += 1

    def add_fact(self, fact: Mapping[str, Any]) -> None:
        """Take in a fact."""
        try:
            self.facts.append(KgAddRequest.model_validate(fact))
        except ValidationError as error:
            self.left_out[_reason("facts", error)] += 1


def utc(text: object) -> str | None:
    """A time as RFC 3339 in UTC; a time without a zone is in this machine's zone. None if it cannot be read."""
    try:
        return format_ts(datetime.fromisoformat(str(text)).astimezone(UTC))
    except (ValueError, OverflowError, OSError):  # the last two for impossible times
        return None


def _parts(text: str) -> Iterator[str]:
    """The text in parts that a drawer can hold, cut at the last line break that fits."""
    while len(text) > CONTENT_CHARS:
        at = text.rfind("\n", 1, CONTENT_CHARS) + 1 or CONTENT_CHARS
        yield text[:at]
        text = text[at:]
    yield text


def _reason(what: str, error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{what}: {'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Value error, ')}"


# Reads a MemPalace store: drawers from Chroma's SQLite file, facts from its knowledge graph, and ``tunnels.json``.


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


# Reads a folder of notes in Markdown: a drawer for each section.


NOTE_SUFFIXES: Final = frozenset({".md", ".markdown"})
_HEADING: Final = re.compile(r"#{1,6} ")
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")


def read_notes(path: Path, wing: str | None) -> PalaceSource:
    """The notes in a folder, or one file.

    The room is the folder directly below ``path``, and for a note in ``path`` itself its name.

    Raises:
        NotFound: If there is no note.
        InvalidFile: If a note cannot be read, or is too large.
    """
    root = path if path.is_dir() else path.parent
    source = PalaceSource(shown(f"notes:{path.resolve()}"))
    place = (wing or shown(root.resolve().name))[:PLACE_CHARS]
    none = True
    for file in files_of(path, _is_note, source.leave_out, hidden=False):
        none = False
        inside = PurePosixPath(file.inside)
        room = (inside.parts[0] if len(inside.parts) > 1 else inside.stem)[:PLACE_CHARS]
        try:
            text = file.read(MAX_TEXT_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            source.left_out["notes that are not UTF-8"] += 1
            continue
        for section in sections_of(text):
            if is_noise(section):
                source.left_out["sections of fewer than 10 characters, or of one phrase"] += 1
                continue
            source.add(
                {
                    "drawer_id": drawer_id(place, room, section),
                    "wing": place,
                    "room": room,
                    "content": section,
                    "source_file": file.inside[-512:],
                    "added_by": "notes",
                    "filed_at": format_ts(datetime.fromtimestamp(file.mtime, UTC)),
                }
            )
    if none:
        raise NotFound(f"no note in {path}", hint="name a folder with Markdown files (*.md), or a MemPalace store")
    return source


def sections_of(text: str) -> list[str]:
    """The sections of a note, each with its heading; a heading without a text begins the section that follows it.

    YAML at the head of the note belongs to the first section.
    """
    sections: list[list[str]] = [[]]
    lines = text.splitlines(keepends=True)
    fence, has_text = "", False
    for line in lines[_front_matter(lines) :]:
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = not fence and _HEADING.match(line) is not None
        if heading and has_text:
            sections.append([])
            has_text = False
        has_text = has_text or (not heading and bool(line.strip()))
        sections[-1].append(line)
    sections[0][:0] = lines[: _front_matter(lines)]
    return [section for lines in sections if (section := "".join(lines).strip("\r\n"))]


def _front_matter(lines: Sequence[str]) -> int:
    """Number of lines of the YAML at the head."""
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    return marks[1] + 1 if len(marks) > 1 and marks[0] == 0 else 0


def _is_note(inside: str) -> bool:
    return PurePosixPath(inside).suffix.lower() in NOTE_SUFFIXES
