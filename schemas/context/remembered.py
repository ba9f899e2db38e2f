"""Which remembered notes are in an agent's memory block, and how they are written there.

Why: an operator with forty notes expects the agent to know them without a question. Invariant: pure; the text never
has more than the budget's tokens, each note is one line, and no note that the scanners block is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Final

from ..entries.rules import is_agent_itself
from ..recall.render import PromptHit, escaped, one_line, short_who
from ..text.analyzer import tokens_of
from ..text.injection import scan
from .budget import estimate, shortened

VERSION: Final = 1

TOKENS_DEFAULT: Final = 1_000
"""Tokens of the remembered notes in a block, its markers included: some forty notes of one sentence."""
NOTE_TOKENS: Final = 100
"""Tokens of one note, so that no text of 2,000 characters takes the place of ten others; the rest is cut."""
SCANNED_MOST: Final = 8_192
"""Notes whose findings are kept; scanning one costs 0.2 ms."""


@dataclass(frozen=True, slots=True)
class Note:
    """A remembered text.

    Attributes:
        seq: Sequence of its entry.
        day: Its day, UTC, ``2026-05-14``.
        agent_id: The agent whose memory it is, None if it is for a crew.
        uses: How often it reached a prompt.
        entry_id: Id of its entry.
    """

    seq: int
    day: str
    text: str
    agent_id: str | None
    actor_type: str
    actor_id: str | None
    uses: int = 0
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class NoteLines:
    """The lines of a block.

    Attributes:
        text: One line for each note, the newest first, and a line with the number of those left out; may be empty.
        shown: Number of notes in it.
        omitted: Notes that did not fit.
        blocked: Notes that the scanners block.
    """

    text: str
    shown: int = 0
    omitted: int = 0
    blocked: int = 0


def notes_text(
    notes: Sequence[Note], reader: str | None, tokens: int, count: Callable[[str], int] = estimate
) -> NoteLines:
    """Write notes into a budget.

    Of notes with the same words the newest counts. If not all fit, they are taken in turn from the newest and from the most
    used; one that does not fit leaves its place to the next.

    Args:
        notes: In any order.
        reader: The agent whose block it is: its own notes name no author.
        tokens: Budget of the lines.
        count: Counts tokens.
    """
    newest = sorted(_without_repeats(notes), key=lambda note: (note.day, note.seq), reverse=True)
    passed = [note for note in newest if not _is_blocked(note.text, note.agent_id, note.actor_id)]
    blocked = len(newest) - len(passed)
    lines = {note.seq: _line(note, reader, count) for note in passed}
    costs = {seq: count(line) for seq, line in lines.items()}
    whole = sum(costs.values()) <= tokens and not blocked
    left = tokens if whole else tokens - count(_more(len(newest), len(newest)))
    chosen: set[int] = set()
    for note in passed if whole else _in_turn(passed):
        if note.seq not in chosen and costs[note.seq] <= left:
            chosen.add(note.seq)
            left -= costs[note.seq]
    if not chosen:
        return NoteLines("", 0, len(passed), blocked)
    omitted = len(passed) - len(chosen)
    text = "".join(lines[note.seq] for note in passed if note.seq in chosen) + _more(omitted, blocked)
    return NoteLines(text, len(chosen), omitted, blocked)


def _without_repeats(notes: Sequence[Note]) -> list[Note]:
    newest: dict[tuple[str, ...], Note] = {}
    for note in sorted(notes, key=lambda note: (note.day, note.seq)):
        words = tuple(tokens_of(note.text)) or (note.text,)
        known = newest.get(words)
        uses = note.uses + (known.uses if known is not None else 0)
        newest[words] = replace(note, uses=uses)
    return list(newest.values())


def _in_turn(newest: Sequence[Note]) -> Iterator[Note]:
    """Notes by age and by use in turn; each may occur twice."""
    used = sorted((note for note in newest if note.uses), key=lambda note: (-note.uses, -note.seq))
    return (note for note in chain.from_iterable(zip_longest(newest, used)) if note is not None)


def _line(note: Note, reader: str | None, count: Callable[[str], int]) -> str:
    author = PromptHit("", "", 0.0, 0.0, note.agent_id, note.actor_type, note.actor_id)
    name = short_who(author, reader)
    author_text = (
        ""
        if is_agent_itself(note.agent_id, note.actor_type, note.actor_id) and note.agent_id == reader
        else f", {name}"
    )
    return f"- {note.day}{author_text}: {escaped(shortened(one_line(note.text), NOTE_TOKENS, count))}\n"


def _more(omitted: int, blocked: int) -> str:
    parts = [f"{omitted} more: recall finds them"] if omitted else []
    parts += [f"{blocked} withheld: possible prompt injection"] if blocked else []
    return f"({'; '.join(parts)})\n" if parts else ""


@lru_cache(maxsize=SCANNED_MOST)
def _is_blocked(text: str, agent_id: str | None, actor_id: str | None) -> bool:
    names = " ".join(name for name in (agent_id, actor_id) if name)
    return any(scan(form) is not None for form in dict.fromkeys((text, one_line(text), f"{names} {one_line(text)}")))
