"""Base importance of an entry: contract §6 (seed 1, "Importance scoring").

Invariant: a pure function in [0, 1]; decay and reinforcement build on it at the event's time, never at the clock's.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 1

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


def base_importance(entry_type: str, severity: str, priority: str) -> float:
    """0.5 + type + severity, lifted to the priority's floor, clamped to [0, 1]."""
    score = START + TYPE_BONUS.get(entry_type, 0.0) + SEVERITY_BONUS.get(severity, 0.0)
    return min(1.0, max(score, PRIORITY_FLOOR.get(priority, 0.0)))
