"""How rare a word is in general, so that its weight in a small memory does not depend on what else is remembered.

Among five texts every word is rare; among five texts and a thousand others, only some words are rare. ``weight_of``
therefore counts a word's occurrences in scope together with those that it would have in ``BACKGROUND`` texts of
everyday language.

Invariant: pure. The vocabulary of word pieces is ordered by frequency, and the frequency of a word falls with its rank
(Zipf, 1949).
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Final

from .word_pieces import pieces_of

BACKGROUND: Final = 1_000
"""Number of imagined texts of everyday language that are added to the texts in scope. Doubling a scope of 1,000 texts
changes a weight by at most ln 2.
"""
FIRST_WORD: Final = 1_996
"""Id of the first whole word of the vocabulary; letters and signs come before it."""
_MOST: Final = 0.5
"""Share of texts that contain the most frequent word."""
_OFTEN: Final = 1.5
"""Share of texts that contain the word of rank r, times r, for texts of about 15 words."""
_FLAT: Final = 5.0
_UNKNOWN: Final = 0.1
"""Number of ``BACKGROUND`` texts that contain a word that the vocabulary splits into pieces."""
_SIGN: Final = 30.0
"""Number of ``BACKGROUND`` texts that contain a single letter or sign."""


@lru_cache(maxsize=16_384)
def background_frequency(word: str) -> float:
    """Number of ``BACKGROUND`` texts that contain a folded word."""
    pieces = pieces_of(word)
    if len(pieces) != 1:
        return _UNKNOWN
    rank = pieces[0] - FIRST_WORD
    return _SIGN if rank < 0 else BACKGROUND * min(_MOST, _OFTEN / (rank + _FLAT))


def weight_of(everyday: float, frequency: int, size: int) -> float:
    """Inverse document frequency over the texts in scope and the background: ``ln(1 + (N - df + .5) / (df + .5))``.

    Args:
        everyday: ``background_frequency`` of the word.
        frequency: Number of texts in scope that contain the word.
        size: Number of texts in scope.
    """
    every = frequency + everyday
    return log(1.0 + (BACKGROUND + size - every + 0.5) / (every + 0.5))
