"""Importance of an entry and its decay: contract §6 (seed 1, "Importance scoring").

Invariant: pure functions into [0, 1]. A decay takes its time from the sweep's ``due`` and starts from the base each
time, so a decay that was skipped or repeated does not change later results.
"""

from __future__ import annotations

from math import log2
from typing import Final

from ..core.timestamps import DAY_MS

VERSION: Final = 2

START: Final = 0.5
TYPE_BONUS: Final = {
    "peer.escalation": 0.20,
    "summary.generated": 0.15,
    "memory.consolidated": 0.20,
    "approval.denied": 0.15,
    "eval.regression_detected": 0.30,
    "keeper.decision": 0.10,
    "mission.status_change": 0.05,
}
SEVERITY_BONUS: Final = {"info": 0.0, "notice": 0.05, "warn": 0.15, "error": 0.25}
PRIORITY_FLOOR: Final = {"normal": 0.0, "pin": 0.80, "high": 0.85, "permanent": 0.95}

FADE_DAYS: Final = 180.0
"""Days until recency would reach zero without its floor."""
LEAST_RECENCY: Final = 0.1
"""Floor of recency, so that old entries keep some importance."""
BOOST_DIVISOR: Final = 8.0
"""Divisor of the boost; limits how much repeated use can raise importance."""


def base_importance(entry_type: str, severity: str, priority: str) -> float:
    """``0.5 + type + severity``, at least the priority's floor, clamped to [0, 1]."""
    score = START + TYPE_BONUS.get(entry_type, 0.0) + SEVERITY_BONUS.get(severity, 0.0)
    return min(1.0, max(score, PRIORITY_FLOOR.get(priority, 0.0)))


def recency(age_ms: int) -> float:
    """``max(0.1, 1 - days / 180)``; a negative age (a vector newer than the sweep's ``due``) counts as 0.

    Args:
        age_ms: Milliseconds since the entry was first indexed.
    """
    days = max(0, age_ms) / DAY_MS
    return max(LEAST_RECENCY, 1.0 - days / FADE_DAYS)


def reference_boost(references: int) -> float:
    """``log2(references + 1)``; a negative count counts as 0."""
    return log2(max(0, references) + 1)


def decayed(base: float, indexed_ms: int, due_ms: int, references: int) -> float:
    """``base * recency * (1 + boost / 8)``, clamped to [0, 1].

    Args:
        base: ``base_importance`` of type, severity and live priority.
        indexed_ms: When the entry was first indexed, milliseconds since the epoch.
        due_ms: When the sweep was due, milliseconds since the epoch.
        references: How often the entry reached a prompt.
    """
    score = base * recency(due_ms - indexed_ms) * (1.0 + reference_boost(references) / BOOST_DIVISOR)
    return min(1.0, max(0.0, score))
