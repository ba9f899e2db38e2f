"""Recognises noise, and cuts long texts into chunks (contract of the palace, §2.1-2.3).

Invariant: no chunk is longer than ``CHUNK_CHARS`` and no chunk of several is shorter than ``LEAST_CHARS``; without
their overlaps the chunks are the text, character for character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .lexicon import lexicon

LEAST_MEANING_CHARS: Final = 10
"""Shorter texts are noise."""
CHUNK_CHARS: Final = 800
OVERLAP_CHARS: Final = 100
LEAST_CHARS: Final = 50
"""A shorter rest is appended to the chunk before it, or gets text from it."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
DELEGATION: Final = "delegation"
"""Kind of a turn that passes work on to another agent; it is not filed."""


class Spoken(NamedTuple):
    """A turn as it is filed; one that ``answers`` the question before it is never noise."""

    speaker: str
    text: str
    kind: str = ""
    answers: bool = False


def is_noise(text: str) -> bool:
    """Whether a text is noise: very short, blank, or only a greeting, thanks, assent or the like."""
    return len(text) < LEAST_MEANING_CHARS or not text.strip() or lexicon().filler.fullmatch(text.strip()) is not None


def exchange(user: str, replies: Sequence[tuple[str, str]]) -> str | None:
    """A turn of conversation as the text to file; None if it is noise.

    Args:
        user: What the user said.
        replies: Kind and text of each reply; delegations, empty replies and noise are left out.
    """
    return conversation([Spoken("User", user), *(Spoken("Agent", text, kind) for kind, text in replies)])


def conversation(turns: Sequence[Spoken]) -> str | None:
    """Turns as the text to file, without delegations, empty turns and noise; None if nothing is left."""
    speeches = [
        f"{turn.speaker}: {turn.text}"
        for turn in turns
        if turn.kind != DELEGATION and turn.text.strip() and (turn.answers or not is_noise(turn.text))
    ]
    return "\n\n".join(speeches) or None


def chunks_of(text: str) -> list[str]:
    """Chunks of at most 800 characters, cut at ends of sentences; each repeats up to 100 of the previous one."""
    if len(text) <= CHUNK_CHARS:
        return [text]
    starts = _cuts(text)
    bounds = list(zip(starts, [*starts[1:], len(text)], strict=True))
    return [text[max(0, begin - _overlap(begin, end)) : end] for begin, end in bounds]


def _overlap(begin: int, end: int) -> int:
    return min(OVERLAP_CHARS, CHUNK_CHARS - (end - begin)) if begin else 0


def _cuts(text: str) -> list[int]:
    """Where chunks begin, overlaps aside: at the last end of a sentence that fits, else after 700 characters."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    starts = [0]
    at = 0
    while len(text) - starts[-1] > CHUNK_CHARS - (OVERLAP_CHARS if starts[-1] else 0):
        begin = starts[-1]
        latest = begin + CHUNK_CHARS - OVERLAP_CHARS
        best = None
        while at < len(ends) and ends[at] <= latest:
            if ends[at] - begin >= LEAST_CHARS:
                best = ends[at]
            at += 1
        starts.append(min(best or latest, len(text) - LEAST_CHARS))
    return starts
