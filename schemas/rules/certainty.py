"""How surely a memory is about a query, in words: one scale for recall, contexts and blocks.

Invariant: pure; a higher value never gets a lesser word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SURE_FROM: Final = 0.7
LIKELY_FROM: Final = 0.3


class Certainty(StrEnum):
    """The words, the best first."""

    SURE = "sure"
    LIKELY = "likely"
    WEAK = "weak"


def certainty(value: float) -> Certainty:
    """The word of a value between 0 and 1: of a hit its confidence, of another memory its similarity to the query."""
    if value >= SURE_FROM:
        return Certainty.SURE
    return Certainty.LIKELY if value >= LIKELY_FROM else Certainty.WEAK
