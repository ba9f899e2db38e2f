"""Words that a writer may have meant by a word that occurs nowhere: other forms of an identifier, common short names, typos.

There is no dictionary of the words in the index, because it would keep erased words: the index stores hashes of
terms. So every word one edit away is generated and looked up (Norvig, "How to Write a Spelling Corrector"); the first
letter is taken as right, which halves them. Invariant: pure, for queries only, so a change rebuilds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final

from ..vocabulary import vocabulary
from .word_forms import parts_of, without_marks

MIN_TYPO: Final = 4
"""Minimum number of letters of a word that may have a typo; shorter words are one edit away from too many others."""
MAX_TYPO: Final = 24
_ALPHABETS: Final = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюяё", "αβγδεζηθικλμνξοπρστυφχψω")


@cache
def short_names() -> Mapping[str, Sequence[str]]:
    """Common short names with their long forms, and the other way round, folded: ``language/short_names.json``."""
    text = resources.files("crew_journal.schemas").joinpath("language", "short_names.json").read_text("utf-8")
    names: Mapping[str, Sequence[str]] = json.loads(text)
    return names


def meant_by(word: str) -> Iterator[list[str]]:
    """Folded words to look up instead of a word that occurs nowhere, in groups; the nearest group comes first.

    A word of the English vocabulary, and one with digits, is not taken as a typo: ``E-4712`` is not ``E-4711``.

    Args:
        word: As written, in NFKC.
    """
    folded = word.casefold()
    yield [*parts_of(word), *short_names().get(folded, ())]
    if MIN_TYPO <= len(folded) <= MAX_TYPO and folded.isalpha() and without_marks(folded) not in vocabulary():
        yield one_edit_away(folded)


def one_edit_away(word: str) -> list[str]:
    """Every word with the same first letter that lacks a letter, has one more or another one, or swaps two neighbours."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    near: dict[str, None] = {}
    for at in range(1, len(word) + 1):
        head, tail = word[:at], word[at:]
        if tail:
            near[head + tail[1:]] = None
        if len(tail) > 1:
            near[head + tail[1] + tail[0] + tail[2:]] = None
        for letter in letters:
            near[head + letter + tail] = None
            if tail:
                near[head + letter + tail[1:]] = None
    near.pop(word, None)
    return list(near)
