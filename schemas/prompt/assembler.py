"""Assembles texts of memories for prompts: one cut, one form of a line, one rule of what fits, one frame, for every profile.

Profiles are data: the memory block (``context/memory_block``), the context of layered memory (``context/assembly``), the
layers of the palace (``palace/layers``), recalled hints (``recall/render``). Each text is scanned for injections, and what
could end its block or begin another one is replaced or escaped.

Invariant: budgeted blocks together never exceed the budget, separators included. A section cannot end its block or begin
another one, because brackets of our markers and dashes of our section lines are replaced in it. The same input gives the
same text. A blocked text is replaced by its notice before anything is cut.

Shares: in the order of ``turn``, each block may use its percentage of what the earlier blocks have left, rounded
down; the next blocks get what it does not use. A section that does not fit is cut, the ones after it are dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, TypeVar

from ..entries.rules import is_agent_itself
from ..text.injection import InjectionFinding, scan
from ..text.lookalikes import BREAKING, UNSEEN, folded

T = TypeVar("T")

# Sizes: what fits into a budget of characters or of tokens.


Count = Callable[[str], int]
"""Size of a text: its characters (``len``), or its tokens by a tokenizer or an estimate; 0 for the empty text."""

_TOKEN: Final = re.compile(
    r"[A-Za-z]{1,7}|[0-9]{1,3}|[ \t]{2,}|[\x00-\x08\x0a-\x1f!-/:-@\[-`{-\x7f]"
    r"|[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]|[\U00010000-\U0010ffff]"
    r"|[^\x00-\x7f\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00010000-\U0010ffff]{1,2}"
)
"""The text of one token; a single blank belongs to the word after it. Against o200k_base: chat +12 %, Markdown +17 %,
JSON +26 %, code +33 %; single chat messages from -20 % on. Four characters a token give JSON -33 %.
"""
_BEYOND: Final = re.compile(r"[\U00010000-\U0010ffff]")
"""Characters such as emoji, which have two tokens."""


def estimate(text: str) -> int:
    """Estimated number of tokens."""
    return sum(map(_of_line, text.splitlines(keepends=True)))


@lru_cache(maxsize=16_384)
def _of_line(line: str) -> int:
    tokens = len(_TOKEN.findall(line))
    return tokens if line.isascii() else tokens + len(_BEYOND.findall(line))


@dataclass(frozen=True, slots=True)
class CutForm:
    """How a text is cut.

    Attributes:
        mark: Ends a text that is cut; part of its size.
        whole_signs: Whether a character keeps its marks: an accent, a skin tone, the parts of a joined emoji.
        stripped: Whether blanks before the mark are left out.
    """

    mark: str = ""
    whole_signs: bool = False
    stripped: bool = False


SIGNS: Final = CutForm(whole_signs=True)
SECTION: Final = CutForm("\n[… cut: the rest does not fit]", whole_signs=True)
"""Of a section."""
DOTS: Final = CutForm("...")
"""Of a line of the palace."""
ELLIPSIS: Final = CutForm("…")
"""Of a name."""
WORDS: Final = CutForm(" …", stripped=True)
"""Of a memory within a number of tokens."""


def cut(text: str, room: int, how: CutForm = SIGNS, count: Count = len) -> str:
    """The longest beginning of a text that fits with the mark; with a mark, empty if nothing but the mark fits."""
    if count(text) <= room:
        return text
    if count is len:
        end = max(room - len(how.mark), 0)
    else:
        end, high = 0, len(text)
        while end < high:
            middle = (end + high + 1) // 2
            kept = text[:middle].rstrip() if how.stripped else text[:middle]
            if count(kept + how.mark) <= room:
                end = middle
            else:
                high = middle - 1
    while how.whole_signs and end and (_extends(text[end]) or text[end - 1] == _JOINER):
        end -= 1
    kept = text[:end].rstrip() if how.stripped else text[:end]
    return kept + how.mark if kept.strip() or not how.mark else ""


def fitting(parts: Iterable[T], size: Callable[[T], int], room: int, *, past: bool = False, least: int = 0) -> list[T]:
    """The parts that fit, in the order in which they are given, up to the first that does not.

    Args:
        parts: The parts; none is read behind the first that does not fit.
        size: The size of a part, in the unit of the room.
        room: The sum of sizes that fits.
        past: Whether parts behind one that does not fit may take its place.
        least: So many of the first parts are taken whatever their size.
    """
    taken: list[T] = []
    for part in parts:
        if (cost := size(part)) <= room or len(taken) < least:
            taken.append(part)
            room -= cost
        elif not past:
            break
    return taken


# Lines: who said something and when, and its text on one line.


NOTICE: Final = "[REDACTED: possible prompt injection, category={category} pattern={pattern}]"
"""Replaces a text in a line between tags."""
BLOCKED: Final = (
    "[BLOCKED: possible prompt injection in {label} — category={category} pattern={pattern}; "
    "operator can inspect the file directly]"
)
"""Replaces a section that the scanners block (seed 3, Load-time injection scan)."""
REDACTED: Final = "redacted"
"""Replaces a type, a standing or an actor that a scanner blocks."""
EMPTY: Final = "(empty)"
NAME_CHARS: Final = 24
"""Longest name in a short line."""
_SCANNED_CHARS, _SCANNED_LINES, _SCANNED_TEXTS = 4_000, 32_768, 1_024
"""Findings of so many lines, and of so many longer texts, are kept: most texts are shown again and again, and scanning one
takes 0.5 to 2 µs a character."""
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "＜": "&lt;", "＞": "&gt;", "﹤": "&lt;", "﹥": "&gt;"}
)
_SEPARATORS: Final = str.maketrans("._-", "   ")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_NAME_ESCAPES: Final = str.maketrans({"[": "&#91;", "]": "&#93;", "•": "&bull;", '"': "&quot;"})


@dataclass(frozen=True, slots=True)
class LineForm:
    """The form of a line: what stands before its head, between the parts of the head, and between head and text."""

    before: str
    between: str
    after: str

    def line(self, head: Iterable[str | None], text: str) -> str:
        """A line; parts of the head that are empty are left out."""
        return f"{self.before}{self.between.join(filter(None, head))}{self.after}{text}"


def one_line(text: str) -> str:
    """The text on one line, with single blanks, without control characters and invisible characters."""
    if text.isascii() and text.isprintable():  # the same, in a tenth of the time
        return " ".join(text.split()) or EMPTY
    return BREAKING.sub(" ", UNSEEN.sub("", text)).strip() or EMPTY


def escaped(text: str) -> str:
    """The text with ``<``, ``>`` and ``&`` escaped, including full-width and small forms."""
    return text.translate(_ESCAPES)


def escaped_part(text: str) -> str:
    """``escaped``, and what delimits the parts of a head is written as entities."""
    return escaped(text).translate(_NAME_ESCAPES)


def spoken(name: str) -> str:
    """A name as the scanners read it: its words apart."""
    return name.translate(_SEPARATORS)


def finding_among(*texts: str) -> InjectionFinding | None:
    """What the scanners block in the first of these texts that they block."""
    kept = (_of_short(text) if len(text) <= _SCANNED_CHARS else _of_long(text) for text in texts)
    return next((finding for finding in kept if finding is not None), None)


_of_short: Final = lru_cache(maxsize=_SCANNED_LINES)(scan)
_of_long: Final = lru_cache(maxsize=_SCANNED_TEXTS)(scan)


def finding_of(*texts: str) -> str | None:
    """``finding_among`` as ``category/pattern``."""
    finding = finding_among(*texts)
    return None if finding is None else f"{finding.category}/{finding.pattern}"


def finding_in_names(*names: str | None) -> InjectionFinding | None:
    """What the scanners block in names, one by one and together."""
    given = dict.fromkeys(name for name in names if name)
    return finding_among(*given, spoken(" ".join(given)))


def who_text(agent_id: str | None, actor_type: str, actor_id: str | None) -> str:
    """``agent ada``, or ``agent ada, actor user "Maria S."`` if the actor is not the agent; escaped.

    A name that is not an id is quoted; characters that delimit parts of the line are written as entities.
    """
    actor = f"actor {actor_type}" if actor_id is None else f"actor {actor_type} {_name_text(actor_id)}"
    if agent_id is None:
        return actor
    agent = f"agent {_name_text(agent_id)}"
    return agent if is_agent_itself(agent_id, actor_type, actor_id) else f"{agent}, {actor}"


def author_text(agent_id: str | None, actor_type: str, actor_id: str | None) -> str:
    """``who_text``, or ``redacted`` if the scanners block a name."""
    blocked = finding_in_names(agent_id, actor_id) is not None
    return REDACTED if blocked else who_text(agent_id, actor_type, actor_id)


def short_who(agent_id: str | None, actor_type: str, actor_id: str | None, reader: str | None = None) -> str:
    """``ada``, or ``user "Maria S." (ada)`` if the actor is not the agent; escaped, and long names are cut.

    The agent is left out behind an actor if it is the ``reader``.
    """
    agent = "" if agent_id is None else _name_text(cut(agent_id, NAME_CHARS, ELLIPSIS))
    if is_agent_itself(agent_id, actor_type, actor_id):
        return agent
    has_name = actor_id is not None and actor_id != actor_type
    actor = f"{actor_type} {_name_text(cut(actor_id or '', NAME_CHARS, ELLIPSIS))}" if has_name else actor_type
    return actor if agent_id in (None, reader) else f"{actor} ({agent})"


def _name_text(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else f'"{escaped_part(one_line(name))}"'


# Blocks: sections between markers. ``[NAME]`` to ``[END NAME]``.


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
MARKER_CHARS: Final = 80
"""Longest text in brackets that is compared with the markers; the longest marker has 23 letters."""
LABEL_CHARS: Final = 160
BLOCKED_NAME: Final = "(blocked name)"
"""Replaces a label that the scanners block."""

_OPEN, _CLOSE = re.escape("[［【〔⟦❲"), re.escape("]］】〕⟧❳")
_BRACKETED: Final = re.compile(rf"[{_OPEN}]([^{_OPEN}{_CLOSE}]{{1,{MARKER_CHARS}}})[{_CLOSE}]")
_DASHES: Final = "-‐‑‒–—―−﹣－"
_DASHED_LINE: Final = re.compile(rf"^[^\S\n]*[{_DASHES}]{{2}}[^\n]*[{_DASHES}]{{2}}[^\S\n]*$", re.MULTILINE)
_AS_RULE: Final = str.maketrans(dict.fromkeys(_DASHES, "="))
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
        return self.finding if self.scanned or self.finding is not None else finding_of(self.body)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a profile: sections between two markers.

    Attributes:
        name: Its name in the answer.
        marker: ``AGENT MEMORY`` is written as ``[AGENT MEMORY]`` and ``[END AGENT MEMORY]``.
        header: Lines below the opening marker.
        percent: Its share; None for a block outside the budget.
        turn: Blocks are given their share in ascending order.
        labelled: Whether each section has a line with its label.
    """

    name: str
    marker: str
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


def assemble(profile: Sequence[Block], sections: Mapping[str, Sequence[Section]], budget: int = 0) -> Assembled:
    """Render the blocks of a profile within a budget.

    Args:
        profile: In the order of the text.
        sections: Name of a block → its sections, in the order of the text.
        budget: Characters for the blocks that have a share.
    """
    rendered: dict[str, tuple[str, list[SectionState]]] = {}
    left = budget
    for block in sorted(profile, key=lambda block: block.turn):
        room = None if block.percent is None else left * block.percent // 100 - 1
        rendered[block.name] = _rendered(block, sections.get(block.name, ()), room)
        if block.percent is not None and (text := rendered[block.name][0]):
            left -= len(text) + 1
    parts = {block.name: rendered[block.name] for block in profile}
    return Assembled(
        tuple(text for text, _ in parts.values() if text),
        tuple(item for _, states in parts.values() for item in states),
        {name: len(text) + 1 if text else 0 for name, (text, _) in parts.items()},
    )


def joined(texts: Iterable[str]) -> str:
    """The blocks as one text, a blank line between them."""
    return "\n".join(texts)


def wrapped(marker: str, inner: str) -> str:
    """Text between the markers, each on a line of its own."""
    return f"[{marker}]\n{inner}[END {marker}]\n"


def notice_of(label: str, finding: str) -> str:
    """The notice in the place of a section with a finding ``category/pattern``."""
    category, _, pattern = finding.partition("/")
    return BLOCKED.format(label=label, category=category, pattern=pattern)


def safe_text(section: Section) -> str:
    """The body of a section for a block: a notice if it is blocked, else without anything that looks like a marker."""
    finding = section.blocking
    if finding is not None:
        return notice_of(safe_label(section.label), finding)
    return neutral(_lines(section.body))


def safe_label(label: str) -> str:
    """A label on one line, without what looks like a marker; ``(blocked name)`` if the scanners block it.

    Labels hold names that agents choose, such as those of topics.
    """
    line = one_line(label)
    return BLOCKED_NAME if finding_among(line, spoken(line)) else neutral(line)[:LABEL_CHARS]


def neutral(text: str) -> str:
    """The text without section lines and brackets that look like ours; it keeps its length."""
    forms = _forms()
    text = _DASHED_LINE.sub(_as_rule, text)
    return _BRACKETED.sub(lambda match: f"({match[1]})" if _letters(match[1]) in forms else match[0], text)


def _rendered(block: Block, given: Sequence[Section], room: int | None) -> tuple[str, list[SectionState]]:
    """The text of a block in at most ``room`` characters, and the state of its sections."""
    pieces = [
        _piece(block, replace(section, finding=section.blocking))
        for section in given
        if section.body.strip() or section.finding is not None
    ]
    left = None if room is None else room - len(wrapped(block.marker, block.header))
    if left is not None and sum(len(head) + len(body) + 1 for _, head, body in pieces) > left:
        pieces.sort(key=lambda piece: (piece[0].relevance is not None, -(piece[0].relevance or 0.0)))
    inner, states = "", []
    for section, head, body in pieces:
        kept = body if left is None else cut(body, left - len(head) - 1, SECTION)
        if left is not None:
            left = left - len(head) - len(kept) - 1 if kept == body else 0
        was_cut, blocked = bool(kept) and kept != body, section.finding is not None
        states.append(SectionState(block.name, section.name, section.label, len(kept), was_cut, blocked))
        if kept:
            inner += f"{head}{kept if blocked else neutral(kept)}\n"
    return (wrapped(block.marker, block.header + inner) if inner else ""), states


def _piece(block: Block, section: Section) -> tuple[Section, str, str]:
    """A section, its label line, and its body or the notice that replaces it."""
    label = safe_label(section.label) if block.labelled or section.finding is not None else ""
    head = f"--- {label} ---\n" if block.labelled else ""
    return section, head, _lines(section.body) if section.finding is None else notice_of(label, section.finding)


def _lines(text: str) -> str:
    """The text with our line breaks, none of them at its end."""
    return "\n".join(text.splitlines()).rstrip("\n")


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


def _as_rule(match: re.Match[str]) -> str:
    """A line between dashes, with other dashes if it has text."""
    line = match[0]
    inner = line.strip().strip(_DASHES)
    return line if _NO_LETTER.fullmatch(inner) or not inner else line.translate(_AS_RULE)
