"""How sure a figure is: cluster-bootstrap intervals over conversations.

Why clusters: questions about one conversation are easy or hard together, so single questions overstate what is known.

Invariant: the same figures give the same interval (the draws are seeded).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

DRAWS: Final = 4_000
SEED: Final = 20_260
LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the interval that holds it at level ``LEVEL``; over ``clusters`` clusters."""

    mean: float
    low: float
    high: float
    clusters: int

    def as_dict(self) -> dict[str, float]:
        """As JSON, rounded to four places."""
        return {"mean": round(self.mean, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def cluster_bootstrap(values: Sequence[float], clusters: Sequence[str]) -> Interval | None:
    """The percentile interval of a mean when whole clusters are drawn anew (Field and Welsh, 2007); None for no value.

    With few clusters it is narrow only if they agree; with one it says nothing and is as wide as one point.

    Args:
        values: One of each question.
        clusters: The cluster (conversation) of each question.
    """
    if not values:
        return None
    names, of_cluster = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(of_cluster, weights=np.asarray(values, float))
    counts = np.bincount(of_cluster)
    drawn = np.random.default_rng(SEED).integers(0, len(names), (DRAWS, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), len(names))
