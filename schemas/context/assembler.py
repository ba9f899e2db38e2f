"""Assembles sections of text between markers into a prompt context within a budget; each layer of memory has a profile.

Every text of a memory that reaches a prompt goes through ``safe_text`` here, or is a line of ``render``: it is scanned for
injections, and what could end its block or begin another one is replaced. The profiles are the memory block, the context of
layered memory and the layers of the palace.

Invariant: budgeted blocks together never exceed the budget, in characters, separators included. A section cannot end
its block or begin another one, because brackets of our markers and dashes of our section lines are replaced in it.
The same input gives the same text. A blocked section is replaced by its notice before anything is cut.

Shares: in the order of ``turn``, each block may use its percentage of what the earlier blocks have left, rounded
down; the next blocks get what it does not use. A section that does not fit is cut, the ones after it are dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

from ..recall.render import one_line, spoken
from ..text.injection import finding_in
from ..text.lookalikes import folded

# Names of the parts of every text that the assembler makes for a prompt: ``[NAME]`` to ``[END NAME]``.


INSTRUCTIONS: Final = "MEMORY INSTRUCTIONS"
REMEMBERED: Final = "REMEMBERED"
MARKERS: Final = (
    "AGENT MEMORY",
    "CREW SHARED MEMORY",
    "WORKSPACE MEMORY",
    "PINS",
    "PERSONA",
    "OPERATOR MODEL",
    "PEER CONTEXT",
    INSTRUCTIONS,
    "MEMORY NOTICE",
    REMEMBERED,
)
"""Of the memory block."""
CONTEXT_MARKERS: Final = ("WORKING MEMORY", "SEMANTIC MEMORY", "EPISODIC MEMORY", "PROCEDURAL MEMORY")
"""Of the context of layered memory, one for each kind of memory."""
IDENTITY, STORY, DRAWERS = PALACE_MARKERS = ("PALACE IDENTITY", "PALACE MEMORY", "PALACE DRAWERS")
"""Of the palace: the identity, the essential story, and drawers of a place or a search."""
EVERY_MARKER: Final = (*MARKERS, *CONTEXT_MARKERS, *PALACE_MARKERS)
"""No text of a memory may contain one of them, whichever profile it is shown by."""

VERSION: Final = 2

CUT_SUFFIX: Final = "\n[… cut: the rest does not fit]"
"""Ends a section that is cut; part of the budget."""
BLOCKED: Final = (
    "[BLOCKED: possible prompt injection in {label} — category={category} pattern={pattern}; "
    "operator can inspect the file directly]"
)
"""Replaces a section that the scanners block (seed 3, Load-time injection scan)."""
MARKER_CHARS: Final = 80
"""Longest text in brackets that is compared with the markers; the longest marker has 23 letters."""
LABEL_CHARS: Final = 160
BLOCKED_NAME: Final = "(blocked name)"
"""Replaces a label that the scanners block."""
SCANNED_TEXTS: Final = 1_024
"""Size of the cache of findings; scanning takes 0.5 to 2 µs a character, and most texts are shown again and again."""

_OPEN, _CLOSE = re.escape("[［【〔⟦❲"), re.escape("]］】〕⟧❳")
_BRACKETED: Final = re.compile(rf"[{_OPEN}]([^{_OPEN}{_CLOSE}]{{1,{MARKER_CHARS}}})[{_CLOSE}]")
_DASHES: Final = "-‐‑‒–—―−﹣－"
_DASHED_LINE: Final = re.compile(rf"^[^\S\n]*[{_DASHES}]{{2}}[^\n]*[{_DASHES}]{{2}}[^\S\n]*$", re.MULTILINE)
_AS_RULE: Final = str.maketrans(dict.fromkeys(_DASHES, "="))
_BREAKS: Final = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_BREAK: Final = re.compile(rf"\r\n|[{_BREAKS}]")
_NO_LETTER: Final = re.compile(r"[\W\d_]+")
_JOINER: Final = "\u200d"
_EXTENDING: Final = frozenset({"Mn", "Mc", "Me"})


@dataclass(frozen=True, slots=True)
class Section:
    """One labelled text.

    Attributes:
        name: Its name in the answer, such as ``daily/2026-05-14.md``.
        label: Its title in the text.
        body: The text; a blank one makes no section.
        finding: ``category/pattern`` of what the scanners block in the body.
        scanned: Whether the scanners have read the body, so that no finding means that it may be shown; if not, they
            read it here.
        relevance: If its block overflows, sections with a relevance come after the others, most relevant first.
    """

    name: str
    label: str
    body: str
    finding: str | None = None
    relevance: float | None = None
    scanned: bool = False

    @property
    def blocking(self) -> str | None:
        """What the scanners block in the body, in which they look for it now if they have not before."""
        return self.finding if self.scanned or self.finding is not None else _finding(self.body)


@dataclass(frozen=True, slots=True)
class Block:
    """Sections between two markers.

    Attributes:
        name: Its name in the answer.
        marker: ``AGENT MEMORY`` is written as ``[AGENT MEMORY]`` and ``[END AGENT MEMORY]``.
        sections: In the order of the text.
        header: Lines below the opening marker.
        percent: Its share; None for a block outside the budget.
        turn: Blocks are given their share in ascending order.
        labelled: Whether each section has a line with its label.
    """

    name: str
    marker: str
    sections: Sequence[Section]
    header: str = ""
    percent: int | None = None
    turn: int = 0
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class SectionState:
    """The state of a section: ``chars`` of its body in the text, notice and suffix included; 0 if it was dropped."""

    block: str
    name: str
    label: str
    chars: int
    cut: bool
    blocked: bool


@dataclass(frozen=True, slots=True)
class Assembled:
    """The result.

    Attributes:
        texts: Texts of the blocks that have one, in their order.
        shown: The state of every section.
        usage: Characters by block, with the empty line after it.
    """

    texts: tuple[str, ...]
    shown: tuple[SectionState, ...]
    usage: dict[str, int]


def assemble(blocks: Sequence[Block], budget: int) -> Assembled:
    """Render blocks within a budget.

    Args:
        blocks: In the order of the text.
        budget: Characters for the blocks that have a share.
    """
    rendered: dict[str, tuple[str, list[SectionState]]] = {}
    left = budget
    for block in sorted(blocks, key=lambda block: block.turn):
        room = None if block.percent is None else left * block.percent // 100
        rendered[block.name] = _rendered(block, None if room is None else room - 1)
        if block.percent is not None and (text := rendered[block.name][0]):
            left -= len(text) + 1
    parts = [rendered[block.name] for block in blocks]
    return Assembled(
        tuple(text for text, _ in parts if text),
        tuple(item for _, states in parts for item in states),
        {block.name: len(text) + 1 if (text := rendered[block.name][0]) else 0 for block in blocks},
    )


def joined(texts: Sequence[str]) -> str:
    """The blocks as one text, a blank line between them."""
    return "\n".join(texts)


def wrapped(marker: str, inner: str) -> str:
    """Text between the markers, each on a line of its own."""
    return f"[{marker}]\n{inner}[END {marker}]\n"


def notice_of(label: str, finding: str) -> str:
    """The notice in the place of a section with a finding ``category/pattern``."""
    category, _, pattern = finding.partition("/")
    return BLOCKED.format(label=label, category=category, pattern=pattern)


def cut_to(text: str, chars: int) -> str:
    """The first ``chars`` characters, fewer where a character with its marks would be split."""
    if chars >= len(text):
        return text
    end = max(chars, 0)
    while end and (_extends(text[end]) or text[end - 1] == _JOINER):
        end -= 1
    return text[:end]


def safe_text(section: Section) -> str:
    """The body of a section for a block: a notice if it is blocked, else without anything that looks like a marker."""
    finding = section.blocking
    if finding is not None:
        return notice_of(safe_label(section.label), finding)
    return neutral(_with_our_breaks(section.body).rstrip("\n"))


def safe_label(label: str) -> str:
    """A label on one line, without what looks like a marker; ``(blocked name)`` if the scanners block it.

    Labels hold names that agents choose, such as those of topics.
    """
    line = one_line(label)
    blocked = any(_finding(text) is not None for text in (line, spoken(line)))
    return BLOCKED_NAME if blocked else neutral(line)[:LABEL_CHARS]


def neutral(text: str) -> str:
    """The text without section lines and brackets that look like ours; it keeps its length."""
    forms = _forms()
    text = _DASHED_LINE.sub(_as_rule, text)
    return _BRACKETED.sub(lambda match: f"({match[1]})" if _letters(match[1]) in forms else match[0], text)


def _rendered(block: Block, room: int | None) -> tuple[str, list[SectionState]]:
    """The text of a block in at most ``room`` characters, and the state of its sections."""
    sections = [
        replace(section, finding=section.blocking, scanned=True)
        for section in block.sections
        if section.body.strip() or section.finding is not None
    ]
    frame = len(wrapped(block.marker, block.header))
    pieces = [_piece(block, section) for section in sections]
    if room is not None and frame + sum(len(head) + len(body) + 1 for head, body in pieces) > room:
        order = sorted(range(len(sections)), key=lambda index: _place(sections[index]))
        sections, pieces = [sections[index] for index in order], [pieces[index] for index in order]
    inner, states, left = "", [], None if room is None else room - frame
    for section, (head, body) in zip(sections, pieces, strict=True):
        kept = body if left is None else _fitted(body, left - len(head) - 1)
        if left is not None:
            left = left - len(head) - len(kept) - 1 if kept == body else 0
        cut, blocked = bool(kept) and kept != body, section.finding is not None
        states.append(SectionState(block.name, section.name, section.label, len(kept), cut, blocked))
        if kept:
            inner += f"{head}{kept if blocked else neutral(kept)}\n"
    return (wrapped(block.marker, block.header + inner) if inner else ""), states


def _piece(block: Block, section: Section) -> tuple[str, str]:
    """The label line of a section, and its body with forbidden characters replaced."""
    label = head = ""
    if block.labelled or section.finding is not None:
        label = safe_label(section.label)
    if block.labelled:
        head = f"--- {label} ---\n"
    if section.finding is not None:
        return head, notice_of(label, section.finding)
    return head, _with_our_breaks(section.body).rstrip("\n")


def _fitted(body: str, room: int) -> str:
    if len(body) <= room:
        return body
    kept = cut_to(body, room - len(CUT_SUFFIX))
    return kept + CUT_SUFFIX if kept.strip() else ""


def _place(section: Section) -> tuple[bool, float]:
    return section.relevance is not None, -(section.relevance or 0.0)


_finding: Final = lru_cache(maxsize=SCANNED_TEXTS)(finding_in)


@cache
def _forms() -> frozenset[str]:
    """The letters of all markers."""
    return frozenset(letters for marker in EVERY_MARKER for letters in (_letters(marker), _letters(f"END {marker}")))


def _letters(text: str) -> str:
    return _NO_LETTER.sub("", folded(text))


def _extends(character: str) -> bool:
    return (
        character == _JOINER
        or unicodedata.category(character) in _EXTENDING
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
    )


def _with_our_breaks(text: str) -> str:
    return _BREAK.sub("\n", text) if any(char in text for char in _BREAKS) else text


def _as_rule(match: re.Match[str]) -> str:
    """A line between dashes, with other dashes if it has text."""
    line = match[0]
    inner = line.strip().strip(_DASHES)
    return line if _NO_LETTER.fullmatch(inner) or not inner else line.translate(_AS_RULE)
