"""The confidence of a hit as one word, for models and people.

Invariant: pure; the words fall with the confidence.
"""

from __future__ import annotations

from typing import Final, Literal

SURE: Final = 0.7
"""Confidence from which a hit is ``sure``: set, not fitted; more than two of three such hits are to be relevant."""
LIKELY: Final = 0.3
"""Confidence from which a hit is ``likely``: set, not fitted."""

ConfidenceWord = Literal["sure", "likely", "weak"]
WEAK: Final[ConfidenceWord] = "weak"


def confidence_word(confidence: float) -> ConfidenceWord:
    """``sure``, ``likely`` or ``weak``, for a calibrated probability that a hit is relevant (0 to 1)."""
    return "sure" if confidence >= SURE else "likely" if confidence >= LIKELY else "weak"
