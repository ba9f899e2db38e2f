"""What a rule or a model says about two texts: that the newer one retires or amends the older one, or that they contradict.

One type for all kinds of text: entries, drawers, facts, lines of documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

ACCEPTED: Final = 0.7
"""Minimum confidence of an update that is published."""
BORDERLINE: Final = 0.8
"""Below this confidence, a language model is asked if one is configured."""
CONFIRMED: Final = 0.9
"""Confidence of a borderline verdict that the language model confirmed."""


class Consequence(StrEnum):
    """The effect of a newer statement on an older one."""

    REPLACES = "replaces"
    AMENDS = "amends"
    """The older statement holds in its other parts."""
    WITHDRAWS = "withdraws"
    REINSTATES = "reinstates"
    CONTRADICTS = "contradicts"
    """Both cannot hold, and neither says that it is the newer state."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement.

    Attributes:
        text: Its text.
        day: The day it was made, days since 1970-01-01 (UTC), for relative dates; None if not known.
        speaker: The name of the person who made it, to whom "I" refers; None if not known.
        is_turn: Whether it is a turn of a conversation. Of two such texts, or of one and a note, only one that names what
            no longer holds or another number, date or name retires the other: much in a conversation sounds alike.
    """

    text: str
    day: int | None = None
    speaker: str | None = None
    is_turn: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a newer statement does to an older one.

    Attributes:
        effect: Its effect.
        confidence: Confidence of the rule, in (0, 1].
        reason: The reason, for people.
        since_day: Day from which the newer statement holds, days since 1970-01-01, if its text names one later than the
            day it was made.
        match: How much the two have in common, to choose among several older statements: the highest.
        of_attitude: Whether somebody does not like any more what the older statement says that they like, or the reverse.
    """

    effect: Consequence
    confidence: float
    reason: str
    since_day: int | None = None
    match: float = 0.0
    of_attitude: bool = False

    @property
    def retires(self) -> bool:
        """Whether the older statement holds no longer."""
        return self.effect not in (Consequence.AMENDS, Consequence.CONTRADICTS) and self.confidence >= ACCEPTED

    @property
    def is_borderline(self) -> bool:
        """Whether to ask a language model."""
        return self.confidence < BORDERLINE

    def confirmed(self) -> Verdict:
        """The same after a model agreed."""
        return replace(self, confidence=CONFIRMED, reason=f"{self.reason}; confirmed by a language model")
