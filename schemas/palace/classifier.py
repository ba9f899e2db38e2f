"""Classifies a text without a model, by markers (contract of the palace, §2.4).

score(type) = number of matches of its markers in lower-cased prose, code left out
confidence = min(1, (score of the best type + bonus) / 5), bonus 2 above 500 characters, 1 above 200
Ties go to the type that is first in the alphabet. ``fact`` and ``task`` have no markers.

Invariant: if a problem that sounds solved or positive gets a different type, the confidence is still that of
``problem``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..text.kinds import lexicon
from .events import DEFAULT_IMPORTANCE, MOST_IMPORTANCE

DIVISOR: Final = 5.0
LONG_CHARS, LONGER_CHARS = 200, 500
LEAST_SEGMENT_CHARS: Final = 20
LINES_OF_ONE: Final = 20
"""A text of one paragraph with more lines is cut into groups of lines."""
GROUP_LINES: Final = 25
LEAST_LETTERS: Final = 0.4
"""A line with a smaller share of letters, of any script, is code."""
GENERAL: Final = "general"
ROOMS: Final = {
    "decision": "decisions",
    "preference": "preferences",
    "milestone": "milestones",
    "problem": "problems",
    "emotional": "emotional",
    "fact": "facts",
    "task": "tasks",
}

_TURN: Final = re.compile(r"^\s*(?:> |(?:human|user|q|assistant|ai|a|claude|chatgpt|agent)\s*:)", re.IGNORECASE)
_LEAST_TURNS: Final = 3
_FENCED: Final = re.compile(r"^\s*```.*?(?:^\s*```\s*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(
    r"^\s*(?:[$#>]\s+\S+\s|(?:cd|ls|git|pip|npm|sudo|docker|kubectl|make|curl|export)\s+[\w./-]|"
    r"(?:import|from|def|class|return|const|let|var|function|func)\s+[\w{*(]+.*[=(:;{]|\||[-=*_]{3,}\s*$|[\[\]{}()]+[,;]?\s*$|"
    r"\w+(?:\.\w+)+\s*=|[A-Z][A-Z0-9_]+=|(?:if|for|while|elif|else|try|except|with)\b.*[:{]\s*$)"
)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Classified:
    """The classification of a text.

    Attributes:
        memory_type: The type; ``general`` if no marker matches.
        confidence: 0 to 1, in fifths.
    """

    memory_type: str
    confidence: float

    @property
    def room(self) -> str:
        """The room of the type."""
        return room_of(self.memory_type)

    @property
    def importance(self) -> float:
        """The initial importance of a drawer of this type."""
        return max(DEFAULT_IMPORTANCE, MOST_IMPORTANCE * self.confidence)


UNCLASSIFIED: Final = Classified(GENERAL, 0.0)


def room_of(memory_type: str) -> str:
    """The room in which drawers of a type are filed; ``general`` for every other text."""
    return ROOMS.get(memory_type, GENERAL)


def classify(text: str, least: float = 0.0) -> Classified:
    """The most confident type over all segments; ``UNCLASSIFIED`` if it is less confident than ``least``."""
    classified_segments = [classify_segment(segment) for segment in segments_of(text)]
    best = max(classified_segments, key=lambda classified: classified.confidence, default=UNCLASSIFIED)
    return best if best.confidence >= least else UNCLASSIFIED


def classify_segment(segment: str) -> Classified:
    """The type of one segment."""
    prose = (prose_of(segment) or segment).lower()
    scores = {kind: sum(marker.count(prose) for marker in markers) for kind, markers in lexicon().markers.items()}
    best = max(scores, key=lambda kind: scores[kind])  # on a tie the first, because types are sorted
    if not scores[best]:
        return UNCLASSIFIED
    return Classified(_disambiguated(best, scores, prose), confidence_of(scores[best], len(segment)))


def confidence_of(score: int, chars: int) -> float:
    """The confidence, computed from the number of matches and of characters."""
    return min(1.0, (score + (chars > LONG_CHARS) + (chars > LONGER_CHARS)) / DIVISOR)


def segments_of(text: str) -> list[str]:
    """The parts that are classified separately: turns of a conversation, else paragraphs, else groups of lines."""
    lines = text.split("\n")
    turns = [at for at, line in enumerate(lines) if _TURN.match(line)]
    if len(turns) >= _LEAST_TURNS:
        starts = sorted({0, *turns})
        parts = ["\n".join(lines[begin:end]) for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    else:
        parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        if len(parts) <= 1 and len(lines) > LINES_OF_ONE:
            parts = ["\n".join(lines[at : at + GROUP_LINES]) for at in range(0, len(lines), GROUP_LINES)]
    return [part.strip() for part in parts if len(part.strip()) >= LEAST_SEGMENT_CHARS]


def prose_of(segment: str) -> str:
    """The segment without code."""
    return "\n".join(line for line in _FENCED.sub("", segment).split("\n") if not _is_code(line)).strip()


def _is_code(line: str) -> bool:
    if _CODE.match(line):
        return True
    text = line.strip()
    return len(text) > 10 and sum(map(str.isalpha, text)) < LEAST_LETTERS * len(text)


def _disambiguated(kind: str, scores: dict[str, int], prose: str) -> str:
    """The type of a problem that is solved (milestone or emotional) or sounds positive (its next best type)."""
    if kind != "problem":
        return kind
    words = set(_WORD.findall(prose))
    known = lexicon()
    glad = len(words & known.positive) > len(words & known.negative)
    if known.resolution.search(prose):
        return "emotional" if scores["emotional"] and glad else "milestone"
    if glad:
        return next((other for other in ("milestone", "emotional") if scores[other]), kind)
    return kind
