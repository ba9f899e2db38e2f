"""The schedule of sweeps.

Invariant: pure; a due time is a multiple of the period since the epoch plus an offset, in UTC, so that all nodes
compute the same due times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..timestamps import DAY_MS

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Due every ``period_ms``, ``offset_ms`` after midnight UTC."""

    period_ms: int
    offset_ms: int


SCHEDULES: Final = {
    "index": Schedule(6 * _HOUR_MS, 0),
    "compaction": Schedule(DAY_MS, 3 * _HOUR_MS),
    "consolidation": Schedule(6 * _HOUR_MS, _HOUR_MS),
    "decay": Schedule(DAY_MS, 3 * _HOUR_MS),
    "health": Schedule(DAY_MS, 3 * _HOUR_MS + _HOUR_MS // 2),
    "peer_cards": Schedule(DAY_MS, 4 * _HOUR_MS),
    "operators": Schedule(DAY_MS, 5 * _HOUR_MS),
    "reflection": Schedule(DAY_MS, 5 * _HOUR_MS),
}
"""Compaction and decay run nightly (contract §11, §6), health half an hour later, the index sweep every six hours
(contract, conflict 7), consolidation an hour after it (contract §12), peer cards at 04:00, operator models (contract
§13) and reflection on facts at 05:00.
"""
VERSIONS_DUE: Final = Schedule(DAY_MS, 4 * _HOUR_MS + _HOUR_MS // 4)
"""Schedule of the sweep of old versions in workspaces that set a retention; its result is an event, so it has no tick."""
MOST_MISSED: Final = 31
"""Due times of one sweep that are run after a downtime, the newest: a month of daily sweeps. Older ones are not needed,
since each decay starts from the base."""


def due_times(schedule: Schedule, after_ms: int, until_ms: int, most: int = MOST_MISSED) -> list[int]:
    """The newest ``most`` due times in (``after_ms``, ``until_ms``], ascending, in milliseconds."""
    first = (after_ms - schedule.offset_ms) // schedule.period_ms + 1
    last = (until_ms - schedule.offset_ms) // schedule.period_ms
    return [n * schedule.period_ms + schedule.offset_ms for n in range(max(first, last - most + 1), last + 1)]
