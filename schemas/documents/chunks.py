"""Cuts a document into chunks for search (contract §16).

Invariant: every line of the text that is not blank is in exactly one chunk, in order; no chunk is larger than
``CHUNK_CHARS_MAX``; line numbers are those of the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

CHUNK_CHARS: Final = 500
"""Maximum length, in characters, of a section that is one chunk, and of a chunk of several paragraphs."""
CHUNK_CHARS_MAX: Final = 1_000
"""Maximum number of characters of a chunk: a longer line is cut."""
HEADING_LEVELS: Final = 6
"""Maximum number of number signs of a heading."""
TITLE_CHARS_MAX: Final = 120
"""Maximum number of characters of a heading in a breadcrumb, which every chunk below it repeats."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document.

    Attributes:
        text: The lines of the piece, headings included.
        breadcrumb: The headings above it, outermost first, joined by `` > ``; empty if absent.
        first_line: Number of its first line, from 1.
        last_line: Number of its last line.
    """

    text: str
    breadcrumb: str
    first_line: int
    last_line: int

    @property
    def indexed(self) -> str:
        """The text that is searched and embedded: breadcrumb and text."""
        return indexed_text(self.breadcrumb, self.text)


def indexed_text(breadcrumb: str, text: str) -> str:
    """The text of a chunk that is searched and embedded: breadcrumb and text."""
    return f"{breadcrumb}\n{text}" if breadcrumb else text


def chunks_of(text: str, first_line: int = 1) -> list[Chunk]:
    """The chunks of a document, in order; none for a blank text.

    Args:
        text: The document.
        first_line: Leave out the chunks before this line, at which a chunk of the text begins.
    """
    chunks: list[Chunk] = []
    for breadcrumb, lines in _sections(text, first_line):
        chunks += _packed(breadcrumb, lines)
    return chunks


def stable_chunks(spans: Sequence[tuple[int, int]]) -> int:
    """Number of leading chunks that later appends to the document do not change.

    An append may change only the last two chunks: when a last paragraph grows beyond ``CHUNK_CHARS``, it is cut into
    lines, and the first line may fit into the previous chunk. The changeable rest begins at the start of a line, so
    that a line that was cut into pieces belongs to it completely.

    Args:
        spans: First and last line of each chunk.
    """
    stable = max(len(spans) - 2, 0)
    while stable and spans[stable][0] == spans[stable - 1][1]:
        stable -= 1
    return stable


_Line = tuple[int, str]


def _sections(text: str, first_line: int) -> Iterator[tuple[str, list[_Line]]]:
    path: list[tuple[int, str]] = []
    lines: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1] == "#" and (heading := _heading(line)) is not None:
            yield " > ".join(title for _, title in path), lines
            path = [*(level for level in path if level[0] < heading[0]), heading]
            lines = []
        if number >= first_line:
            lines.append((number, line))
    yield " > ".join(title for _, title in path), lines


def _heading(line: str) -> tuple[int, str] | None:
    """Level and title of a line; without a regular expression, because that takes quadratic time for a line of blanks."""
    rest = line.lstrip("#")
    level = len(line) - len(rest)
    title = rest.strip()
    if level > HEADING_LEVELS or not rest[:1].isspace() or not title:
        return None
    return level, title[:TITLE_CHARS_MAX]


def _packed(breadcrumb: str, lines: list[_Line]) -> Iterator[Chunk]:
    chunk_lines: list[_Line] = []
    size = 0
    for block in _blocks(lines):
        length = sum(len(line) + 1 for _, line in block)
        if chunk_lines and size + length > CHUNK_CHARS:
            yield _chunk(breadcrumb, chunk_lines)
            chunk_lines, size = [], 0
        chunk_lines += block
        size += length
    if chunk_lines:
        yield _chunk(breadcrumb, chunk_lines)


def _blocks(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Paragraphs; a paragraph that is too long for a chunk is divided into lines, a line that is too long into pieces."""
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
