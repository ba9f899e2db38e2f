"""Reads a folder of notes in Markdown: a drawer for each section.

Invariant: the sections of a note are its text, character for character, besides blank lines at their ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from ....schemas.errors import NotFound
from ....schemas.events.drawers import PLACE_CHARS
from ....schemas.rules.palace.places import drawer_id
from ....schemas.rules.palace.texts import is_noise
from ....schemas.timestamps import format_ts
from ..foreign_files import MAX_TEXT_BYTES, files_of, shown
from .source import PalaceSource

_SUFFIXES: Final = frozenset({".md", ".markdown"})
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
    return PurePosixPath(inside).suffix.lower() in _SUFFIXES
