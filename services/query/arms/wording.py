"""Terms that a query is looked up under besides its own: other forms of its words, and words meant by unknown ones.

Invariant: they count ``SHARE`` of what a term of the query counts, so an entry with the word itself stands higher.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ....schemas.rules.spelling import meant_by
from ....schemas.rules.text import Analyzer

SHARE: Final = 0.5
"""Of the gain of a term."""
MAX_REPLACED: Final = 4
"""Words of a query that are replaced; each costs about a millisecond."""
MAX_MEANT: Final = 3
"""Words that replace one, those of most entries first."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How a query words things.

    Attributes:
        forms: Further terms that are always looked up, and the term of the word that each is a form of: stems of the
            query's language, words without their accents.
        written: The word behind a term, as written.
        analyzer: Gives the terms of other words; None to replace none.
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
