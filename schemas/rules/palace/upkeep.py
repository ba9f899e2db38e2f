"""The decay of drawers, their pruning, and the centroids of types (contract of the palace, §5 and §6).

Invariant: pure. A decay never raises an importance, and pruning never leaves fewer than ``KEPT`` live drawers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

DECAY: Final = "decay"
"""The sweep in which drawers decay."""
DIARY: Final = "diary"
"""Type of entries of a diary, which do not decay and are not merged."""
DECAY_FACTOR: Final = 0.98
"""Per night: half after 34 nights (contract, §5)."""
DECAY_FLOOR: Final = 0.3
DECAY_AGE_DAYS: Final = 30
"""Younger drawers do not decay (likewise) and are not pruned."""
DECAY_UNREAD_DAYS: Final = 7
"""Drawers that were read more recently do not decay (likewise)."""
ACTIVE_MS: Final = 24 * 3_600_000
"""In a workspace in which no drawer was filed or read for 24 hours, drawers neither decay nor are pruned (likewise)."""
PRUNE_BELOW: Final = 0.5
"""Importance below which a drawer may be pruned (likewise)."""
PRUNE_READS: Final = 3
"""Reads from which a drawer is not pruned (likewise)."""
KEPT: Final = 100
"""Number of live drawers of a workspace that pruning keeps (likewise)."""
REINFORCE_ABOVE: Final = 0.7
"""Cosine above which a drawer that is added reinforces an earlier one (likewise)."""
REINFORCE_AMONG: Final = 5
"""Maximum number of nearest drawers that an added drawer reinforces (likewise)."""
REINFORCE_BOOST: Final = 0.5
"""Importance that each of them gains (likewise)."""
CENTROID_DAYS: Final = 90
CENTROID_MOST: Final = 500
"""Drawers of a type that its centroid is the mean of, the most important and newest (contract, §6)."""
CENTROID_LEAST: Final = 50
"""Fewer give no centroid (likewise)."""


@dataclass(frozen=True, slots=True)
class Fading:
    """A live, processed drawer that may be pruned; ``importance`` is that after its decays."""

    drawer_id: str
    importance: float
    access_count: int


def decayed(importance: float, decays: int) -> float:
    """The importance after so many decays: ``max(importance * 0.98 ** decays, 0.3)``; at most 0.3 stays as it is."""
    return max(importance * DECAY_FACTOR**decays, min(importance, DECAY_FLOOR))


def pruned(fading: Iterable[Fading], live: int) -> list[str]:
    """The ids of the drawers to prune, the least important first.

    Args:
        fading: The processed ones of the live drawers.
        live: Number of live drawers.
    """
    weak = [drawer for drawer in fading if drawer.importance < PRUNE_BELOW and drawer.access_count < PRUNE_READS]
    weak.sort(key=lambda drawer: (drawer.importance, drawer.drawer_id))
    return [drawer.drawer_id for drawer in weak[: max(live - KEPT, 0)]]


def source_hash(drawer_ids: Sequence[str]) -> str:
    """Hex SHA-256 over the sorted ids, each followed by a zero byte."""
    return hashlib.sha256("".join(f"{drawer_id}\0" for drawer_id in sorted(drawer_ids)).encode()).hexdigest()
