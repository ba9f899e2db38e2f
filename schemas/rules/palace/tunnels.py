"""The id and the strength of an explicit tunnel (contract of the palace, part C).

strength = max(0.05, s * exp(-days since it was last followed / stability)). Each use adds 0.05 to ``s``, up to 5, and
0.1 to the stability if the previous use was at least an hour before. Both begin at 1.

Invariant: pure; ``s`` and stability depend only on the times at which the tunnel was followed.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Final, NamedTuple

from ...timestamps import DAY_MS

FIRST_STRENGTH: Final = 1.0
FIRST_STABILITY: Final = 1.0
"""Days in which the strength falls to 1/e."""
MOST_STRENGTH: Final = 5.0
LEAST_STRENGTH: Final = 0.05
_STRONGER: Final = 0.05
_STABLER: Final = 0.1
_APART_MS: Final = 3_600_000


class Use(NamedTuple):
    """How a tunnel was used: strength when it was last followed, stability in days, and when that was."""

    strength: float
    stability: float
    followed_ms: int


def tunnel_id(end: tuple[str, str], other_end: tuple[str, str]) -> str:
    """``tunnel_<16 hex>`` of two places (wing, room), the same in both orders."""
    ends = json.dumps(sorted((end, other_end)), ensure_ascii=False)
    return f"tunnel_{hashlib.sha256(ends.encode()).hexdigest()[:16]}"


def followed(use: Use, now_ms: int) -> Use:
    """The use after the tunnel was followed at a time."""
    spaced = now_ms - use.followed_ms >= _APART_MS
    return Use(
        min(MOST_STRENGTH, use.strength + _STRONGER),
        use.stability + _STABLER if spaced else use.stability,
        max(use.followed_ms, now_ms),
    )


def strength_at(use: Use, now_ms: int) -> float:
    """The strength at a time."""
    days = max(0, now_ms - use.followed_ms) / DAY_MS
    return max(LEAST_STRENGTH, use.strength * math.exp(-days / use.stability))
