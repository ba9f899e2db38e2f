"""Proposes an evidence floor from a workspace's own receipts: the highest floor that keeps most of the used hits.

Invariant: pure; a floor is proposed only where enough hits are known to have been used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FLOORS: Final = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
KEEP: Final = 0.95
"""Share of the used hits that the proposed floor keeps."""
LEAST_USED: Final = 20
"""Minimum number of used hits for a proposal: with fewer, one hit changes the share by more than 5 %."""


@dataclass(frozen=True, slots=True)
class ReplayedHit:
    """A hit of a receipt: its confidence, and whether it was reported as used."""

    confidence: float
    used: bool


@dataclass(frozen=True, slots=True)
class FloorFigures:
    """The effect of a floor on the receipts.

    Attributes:
        floor: The floor.
        hits: Mean number of hits per recall.
        used_kept: Share of the hits used that it keeps.
        used_share: Share of the hits it keeps that were used; None if it keeps none.
        silent: Share of the recalls that get nothing.
    """

    floor: float
    hits: float
    used_kept: float
    used_share: float | None
    silent: float


@dataclass(frozen=True, slots=True)
class FloorProposal:
    """The floor to set, None if too few hits were used, and the table it was chosen from."""

    floor: float | None
    figures: tuple[FloorFigures, ...]


def propose_floor(receipts: Sequence[Sequence[ReplayedHit]], keep: float = KEEP) -> FloorProposal:
    """Replay receipts under every floor of ``FLOORS``.

    Args:
        receipts: The hits of each recall in mode ``search``; those of ``inject`` were cut at their own floor.
        keep: Share of the hits used that must stay.
    """
    used = sum(hit.used for hits in receipts for hit in hits)
    figures = tuple(_figures(receipts, floor, used) for floor in FLOORS) if receipts else ()
    enough = [row.floor for row in figures if row.used_kept >= keep]
    return FloorProposal(max(enough) if enough and used >= LEAST_USED else None, figures)


def _figures(receipts: Sequence[Sequence[ReplayedHit]], floor: float, used: int) -> FloorFigures:
    kept = [[hit for hit in hits if hit.confidence >= floor] for hits in receipts]
    left = sum(map(len, kept))
    useful = sum(hit.used for hits in kept for hit in hits)
    return FloorFigures(
        floor,
        left / len(receipts),
        useful / used if used else 1.0,
        useful / left if left else None,
        sum(not hits for hits in kept) / len(receipts),
    )
