"""Cluster-bootstrap intervals over conversations.

Questions about the same conversation are correlated, so an interval over single questions would be too narrow.
Invariant: the same values give the same interval (the draws are seeded).
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
    """A mean and its interval at level ``LEVEL``, over ``clusters`` clusters."""

    mean: float
    low: float
    high: float
    clusters: int

    def as_dict(self) -> dict[str, float]:
        """As JSON, rounded to four decimals."""
        return {"mean": round(self.mean, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def cluster_bootstrap(values: Sequence[float], clusters: Sequence[str]) -> Interval | None:
    """Percentile interval of a mean by resampling whole clusters (Field and Welsh, 2007); None without values.

    With one cluster, the interval has no width and no meaning.
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
