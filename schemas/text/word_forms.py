"""Finds further terms for a query: other forms of its words, and likely corrections of words that occur nowhere.

A writer may have meant the other form of an identifier, the long form of a short name, or a word without the typo.

The index stores hashes of terms instead of words, because a dictionary would keep erased words. So every word one edit
away is generated and looked up (Norvig, "How to Write a Spelling Corrector"); the first letter is assumed to be right,
which halves the number of candidates.

Invariant: pure, for queries only, so a change needs no rebuild of a view. A further term has ``SHARE`` of the weight of
the query's own term, so that an entry with the word itself ranks higher.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final

from .analyzer import Analyzer, parts_of, without_marks
from .vocabulary import vocabulary

SHARE: Final = 0.5
"""Weight of a further term, as a share of the weight of the query's own term."""
MAX_REPLACED: Final = 4
"""Maximum number of words of a query that are replaced; each takes about a millisecond."""
MAX_MEANT: Final = 3
"""Maximum number of replacements of a word; words of the most entries come first."""
MIN_TYPO: Final = 4
"""Minimum number of letters of a word that may have a typo; shorter words are one edit away from too many others."""
MAX_TYPO: Final = 24
_ALPHABETS: Final = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюяё", "αβγδεζηθικλμνξοπρστυφχψω")


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a query and their other forms.

    Attributes:
        forms: Further term that is always looked up → term of the word of which it is a form: stems of the query's
            language, words without their accents.
        written: Term → its word, as written.
        analyzer: Computes the terms of replacements; None to replace no word.
    """

    forms: Mapping[int, int] = field(default_factory=dict)
    written: Mapping[int, str] = field(default_factory=dict)
    analyzer: Analyzer | None = None

    def meant(self, missing: Collection[int]) -> Iterator[tuple[str, Iterator[dict[int, str]]]]:
        """For each ``missing`` term, its word and the groups of terms to look up instead, the nearest group first."""
        words = [self.written[term] for term in missing if term in self.written]
        for word in words[:MAX_REPLACED] if self.analyzer else ():
            yield word, self._groups(word)

    def _groups(self, word: str) -> Iterator[dict[int, str]]:
        assert self.analyzer is not None
        for words in meant_by(word):
            keys = self.analyzer.keys_of(words)
            yield {key: near for key, near in zip(reversed(keys), reversed(words), strict=True) if key}


PLAIN: Final = Wording()


@cache
def short_names() -> Mapping[str, Sequence[str]]:
    """Common short names with their long forms, and the other way round, folded: ``language/short_names.json``."""
    text = resources.files(__package__).joinpath("language", "short_names.json").read_text("utf-8")
    names: Mapping[str, Sequence[str]] = json.loads(text)
    return names


def meant_by(word: str) -> Iterator[list[str]]:
    """Folded words to look up instead of a word that occurs nowhere, in groups; the nearest group comes first.

    A word that is in the English vocabulary or has digits does not count as a typo: ``E-4712`` is not ``E-4711``.

    Args:
        word: As written, in NFKC.
    """
    folded = word.casefold()
    yield [*parts_of(word), *short_names().get(folded, ())]
    if MIN_TYPO <= len(folded) <= MAX_TYPO and folded.isalpha() and without_marks(folded) not in vocabulary():
        yield one_edit_away(folded)


def one_edit_away(word: str) -> list[str]:
    """Every word with the same first letter that differs by one deletion, insertion, replacement or swap of neighbours."""
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
