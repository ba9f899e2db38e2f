"""Salience of a memory, and how fresh a fact is (contract of the layered memory, part B).

salience = Σ wᵢ·xᵢ / Σ wᵢ over the parts that are known: relevance to the query, recency 0.5^(hours / half-life) since
the last change or use, confidence, usage min(1, ln(1 + n) / ln 21), freshness 0.5^(hours since verification /
half-life).

Invariant: pure; all parts and the salience lie in [0, 1]. Freshness changes the order and never removes a memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from ..facts.events import FactType

RECENCY_HALF_LIFE_HOURS: Final = 168.0
UNKNOWN_CONFIDENCE: Final = 0.5
FULL_USAGE: Final = 20
"""Uses from which usage is 1."""
_LOG_FULL_USAGE: Final = math.log1p(FULL_USAGE)
STALE_BELOW: Final = 0.5
REFRESH_BELOW: Final = 0.25
_HOUR_MS: Final = 3_600_000
_DAY_HOURS: Final = 24.0
HALF_LIFE_HOURS: Final[dict[str, float]] = {
    FactType.PERMANENT.value: math.inf,
    FactType.STABLE.value: 180 * _DAY_HOURS,
    FactType.DEFAULT.value: 30 * _DAY_HOURS,
    FactType.VOLATILE.value: _DAY_HOURS,
}
"""Half-life in hours by type of fact."""
_DIGITS: Final = 6


class Freshness(StrEnum):
    """State of a fact."""

    FRESH = "fresh"
    STALE = "stale"
    NEEDS_REFRESH = "needs_refresh"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the five parts, and the half-life of recency in hours.

    Raises:
        ValueError: If a weight is negative or not finite, their sum is not positive, or the half-life is not positive.
    """

    relevance: float = 0.40
    recency: float = 0.20
    confidence: float = 0.15
    usage: float = 0.10
    freshness: float = 0.15
    half_life_hours: float = RECENCY_HALF_LIFE_HOURS

    def __post_init__(self) -> None:
        """Check them."""
        weights = self.by_part()
        for name, weight in weights.items():
            if not 0.0 <= weight < math.inf:
                raise ValueError(f"the salience weight {name} is {weight}: give a number from 0")
        if not sum(weights.values()) > 0.0:
            raise ValueError("the salience weights sum to 0: give at least one a positive number")
        if not 0.0 < self.half_life_hours < math.inf:
            raise ValueError(f"the half-life of recency is {self.half_life_hours} hours: give a positive number")

    def by_part(self) -> dict[str, float]:
        """Part → weight."""
        return {part.name: getattr(self, part.name) for part in fields(SalienceValues)}


@dataclass(frozen=True, slots=True)
class SalienceValues:
    """The parts of a salience, each in [0, 1]; freshness is None if it does not apply."""

    relevance: float
    recency: float
    confidence: float
    usage: float
    freshness: float | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """The inputs of the salience of a memory.

    Attributes:
        relevance: To the query.
        updated_ms: When it was last changed or verified.
        used_ms: When it was last used; None if never.
        confidence: None if unknown.
        uses: How often it was used.
        freshness: None where it does not apply.
    """

    relevance: float
    updated_ms: int
    used_ms: int | None = None
    confidence: float | None = None
    uses: int = 0
    freshness: float | None = None


def parts_of(memory: Remembered, weights: Weights, now_ms: int) -> SalienceValues:
    """The parts of a memory's salience at ``now_ms``."""
    last_ms = max(memory.updated_ms, memory.used_ms or memory.updated_ms)
    return SalienceValues(
        relevance=_unit(memory.relevance),
        recency=_halved(now_ms - last_ms, weights.half_life_hours),
        confidence=UNKNOWN_CONFIDENCE if memory.confidence is None else _unit(memory.confidence),
        usage=_unit(math.log1p(max(0, memory.uses)) / _LOG_FULL_USAGE),
        freshness=None if memory.freshness is None else _unit(memory.freshness),
    )


def salience(parts: SalienceValues, weights: Weights) -> float:
    """The weighted mean of the known parts, to six digits; 0 if none of them has a weight."""
    known = [
        (weights.relevance, parts.relevance),
        (weights.recency, parts.recency),
        (weights.confidence, parts.confidence),
        (weights.usage, parts.usage),
    ]
    if parts.freshness is not None:
        known.append((weights.freshness, parts.freshness))
    total = math.fsum([weight for weight, _ in known])
    if not total > 0.0:
        return 0.0
    return _unit(math.fsum([weight * value for weight, value in known]) / total)


def freshness(verified_ms: int, fact_type: str, half_life_hours: float | None, now_ms: int) -> float:
    """Freshness of a fact last verified or asserted at ``verified_ms``; its own half-life precedes that of its type."""
    return _halved(now_ms - verified_ms, half_life_hours or HALF_LIFE_HOURS[fact_type])


def state_of(value: float) -> Freshness:
    """Below .5 stale, below .25 in need of a refresh."""
    if value < REFRESH_BELOW:
        return Freshness.NEEDS_REFRESH
    return Freshness.STALE if value < STALE_BELOW else Freshness.FRESH


def _halved(elapsed_ms: int, half_life_hours: float) -> float:
    return _unit(0.5 ** (max(0, elapsed_ms) / _HOUR_MS / half_life_hours))


def _unit(value: float) -> float:
    return round(value, _DIGITS) if 0.0 < value <= 1.0 else float(value > 1.0)
