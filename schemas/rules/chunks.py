"""Cuts a document into chunks for search (contract §16).

Invariant: every line of the text that is not blank is in exactly one chunk, in order; no chunk is larger than
``CHUNK_CHARS_MAX``; line numbers are those of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CHUNK_CHARS: Final = 500
"""Characters up to which a section is one chunk, and to which paragraphs are packed."""
CHUNK_CHARS_MAX: Final = 1_000
"""Most characters of a chunk: a longer line is cut."""
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*\S)\s*$")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document.

    Attributes:
        text: The lines of the piece, headings included.
        breadcrumb: The headings above it, outermost first, joined by `` > ``; empty if there is none.
        first_line: Number of its first line, from 1.
        last_line: Number of its last line.
    """

    text: str
    breadcrumb: str
    first_line: int
    last_line: int


def chunks_of(text: str) -> list[Chunk]:
    """The chunks of a document, in order; none for a blank text."""
    found: list[Chunk] = []
    for breadcrumb, lines in _sections(text):
        found += _packed(breadcrumb, lines)
    return found


_Line = tuple[int, str]


def _sections(text: str) -> Iterator[tuple[str, list[_Line]]]:
    path: list[tuple[int, str]] = []
    lines: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if (heading := _HEADING.match(line)) is not None:
            yield " > ".join(title for _, title in path), lines
            level = len(heading[1])
            path = [*(one for one in path if one[0] < level), (level, heading[2])]
            lines = []
        lines.append((number, line))
    yield " > ".join(title for _, title in path), lines


def _packed(breadcrumb: str, lines: list[_Line]) -> Iterator[Chunk]:
    held: list[_Line] = []
    size = 0
    for block in _blocks(lines):
        length = sum(len(line) + 1 for _, line in block)
        if held and size + length > CHUNK_CHARS:
            yield _chunk(breadcrumb, held)
            held, size = [], 0
        held += block
        size += length
    if held:
        yield _chunk(breadcrumb, held)


def _blocks(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Paragraphs; one that is too long for a chunk line by line, a line that is too long in pieces."""
    paragraph: list[_Line] = []
    for line in [*lines, (0, "")]:
        if line[1].strip():
            paragraph.append(line)
            continue
        if sum(len(text) + 1 for _, text in paragraph) <= CHUNK_CHARS:
            if paragraph:
                yield paragraph
        else:
            for number, text in paragraph:
                for start in range(0, len(text), CHUNK_CHARS_MAX - 1):
                    yield [(number, text[start : start + CHUNK_CHARS_MAX - 1])]
        paragraph = []


def _chunk(breadcrumb: str, lines: list[_Line]) -> Chunk:
    return Chunk("\n".join(text for _, text in lines), breadcrumb, lines[0][0], lines[-1][0])
