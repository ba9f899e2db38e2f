"""Agreement of two rankings of the same question, as pure functions of ranked ids.

Logged queries have no known relevant entries; agreement shows on which of them a switch of models would change the
hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PERSISTENCE: Final = 0.9
"""``p`` of the rank-biased overlap; the first ten ranks have 86 % of the weight (Webber et al. 2010)."""


def jaccard(first: Sequence[str], second: Sequence[str]) -> float:
    """``|A ∩ B| / |A ∪ B|`` of two rankings as sets; 1 if both are empty."""
    a, b = set(first), set(second)
    return len(a & b) / len(a | b) if a or b else 1.0


def rank_biased_overlap(first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE) -> float:
    """Extrapolated rank-biased overlap of two rankings without repeats, in [0, 1]; 1 if both are empty.

    Formula 32 of Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", TOIS 28 (2010), for rankings
    of lengths s ≤ l: the agreement at depth d, weighted with ``p^d`` and extrapolated beyond both.
    """
    short, long = sorted((first, second), key=len)
    if not short:
        return 0.0 if long else 1.0
    s, l_ = len(short), len(long)
    seen_short: set[str] = set()
    seen_long: set[str] = set()
    overlap = overlap_at_s = 0
    total = 0.0
    for depth, name in enumerate(long, 1):
        seen_long.add(name)
        if depth <= s:
            other_name = short[depth - 1]
            seen_short.add(other_name)
            overlap += int(name == other_name) + int(name != other_name) * (
                int(name in seen_short) + int(other_name in seen_long)
            )
        else:
            overlap += int(name in seen_short)
        total += overlap / depth * p**depth
        if depth == s:
            overlap_at_s = overlap
        if depth > s:
            total += overlap_at_s * (depth - s) / (s * depth) * p**depth
    rest = (overlap - overlap_at_s) / l_ + overlap_at_s / s
    return min(1.0, (1 - p) / p * total + rest * p**l_)


def same_first(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether both rankings have the same first id, or both are empty."""
    return list(first[:1]) == list(second[:1])
