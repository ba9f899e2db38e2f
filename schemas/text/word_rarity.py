"""How rare a word is in general, so that its weight in a small memory does not depend on what else is remembered.

With five texts in scope every word is rare; with five texts and a thousand others, only some are. ``weight_of`` therefore
counts a word's occurrences in scope together with those that it would have in ``BACKGROUND`` texts of everyday language.

Invariant: pure. The vocabulary of word pieces is ordered by frequency, and the frequency of a word falls with its rank
(Zipf, 1949).
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Final

from .word_pieces import pieces_of

BACKGROUND: Final = 1_000
"""Texts of everyday language that are imagined beside those in scope. Doubling a scope of 1,000 changes no weight by more
than ln 2."""
FIRST_WORD: Final = 1_996
"""Id of the first whole word of the vocabulary; letters and signs come before it."""
_MOST: Final = 0.5
"""Share of texts that the most frequent word occurs in."""
_OFTEN: Final = 1.5
"""Share of texts that hold the word of rank r, times r: texts have about 15 words."""
_FLAT: Final = 5.0
_UNKNOWN: Final = 0.1
"""Texts among ``BACKGROUND`` that hold a word which the vocabulary only has in pieces."""
_SIGN: Final = 30.0
"""Texts among ``BACKGROUND`` that hold a single letter or sign."""


@lru_cache(maxsize=16_384)
def background_frequency(word: str) -> float:
    """Texts among ``BACKGROUND`` that hold a folded word."""
    pieces = pieces_of(word)
    if len(pieces) != 1:
        return _UNKNOWN
    rank = pieces[0] - FIRST_WORD
    return _SIGN if rank < 0 else BACKGROUND * min(_MOST, _OFTEN / (rank + _FLAT))


def weight_of(everyday: float, frequency: int, size: int) -> float:
    """Inverse document frequency over the texts in scope and the background: ``ln(1 + (N - df + .5) / (df + .5))``.

    Args:
        everyday: Its ``background_frequency``.
        frequency: Texts in scope that hold it.
        size: Texts in scope.
    """
    every = frequency + everyday
    return log(1.0 + (BACKGROUND + size - every + 0.5) / (every + 0.5))
