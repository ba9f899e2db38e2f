"""Compares the marks of two texts (numbers, dates, weekdays, names, negations), which must agree if the texts mean the same.

Texts that differ only in a mark have nearly the same words and vectors ("Deploy day is Thursday", "Deploy day changes
from Thursday to Tuesday": cosine .90), so words and vectors cannot show whether one text repeats the other.

Invariant: pure; the list of words is data (``marks.toml``). A changed rule or list is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from .analyzer import STOP_WORDS, fold
from .sentences import values_of

VERSION: Final = 1
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_SENTENCE_ENDS: Final = (".", "!", "?", ":", "\n")


def marks_of(text: str) -> set[str]:
    """Numbers, versions, dates, weekdays, negations, words that reverse a statement, and names inside sentences, folded.

    Numbers are compared by value: ``30s`` and ``0.5 min`` are one mark.
    """
    marks = marks_by_kind(text)
    return marks.values | marks.turning | marks.names


def same_marks(text: str, other_text: str) -> bool:
    """Whether two texts may mean the same.

    They have the same numbers, dates, weekdays and negations. Every name in one text is a word of the other text. Their
    words of direction, degree and time are equal, or one text has only some of the other's.
    """
    return agree(marks_by_kind(text), marks_by_kind(other_text))


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a text by kind, its words, and the words that begin a sentence and may be names; all folded."""

    values: set[str]
    turning: set[str]
    names: set[str]
    heads: set[str]
    words: set[str]


def agree(marks: Marks, other_marks: Marks) -> bool:
    """``same_marks`` for texts whose marks are computed already, to compare one text with many."""
    if marks.values != other_marks.values or (
        marks.turning - other_marks.turning and other_marks.turning - marks.turning
    ):
        return False
    return (marks.names | marks.heads) <= other_marks.words and (other_marks.names | other_marks.heads) <= marks.words


def marks_by_kind(text: str) -> Marks:
    """The marks of a text; about 50 µs for a sentence."""
    negations, turning = _lists()
    parts = Marks(values_of(text), set(), set(), set(), set())
    begins = True
    for match in _WORD.finditer(text):
        word = match[0]
        folded = fold(word)
        parts.words.add(folded)
        if folded in negations or folded.endswith(("n't", "n’t")):
            parts.values.add(folded)
        elif folded in turning:
            parts.turning.add(folded)
        elif word != folded and not any(map(str.isdigit, word)):
            if not begins:
                parts.names.add(folded)
            elif folded not in STOP_WORDS:
                parts.heads.add(folded)
        begins = text[match.end() : match.end() + 1] in _SENTENCE_ENDS
    return parts


@cache
def _lists() -> tuple[frozenset[str], frozenset[str]]:
    """Negations, and words that reverse a statement."""
    data = tomllib.loads(resources.files(__package__).joinpath("marks.toml").read_text("utf-8"))
    negations, turning = (
        frozenset(word for words in data[name].values() for word in words.split()) for name in ("negations", "turning")
    )
    return negations, turning
