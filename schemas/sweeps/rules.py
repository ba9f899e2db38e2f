"""The sweeps, each declared once: ticks, events, the operation, completion and documentation follow from ``ALL_SWEEPS``.

Invariant: pure; a due time is a multiple of the period since the epoch plus an offset, in UTC, so that all nodes
compute the same due times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ..core.timestamps import DAY_MS

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Due every ``period_ms``, ``offset_ms`` after midnight UTC."""

    period_ms: int
    offset_ms: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """A periodic task of each workspace: a reactor (``SweepReactor``) or, for the decay, a fold does its work.

    Attributes:
        name: Unique name in events, in ``status`` and on the command line.
        schedule: When it is due.
        work: Description of the work, for the table in ``docs/operating.md``.
        views: Projections that show its result, which an answer on request waits for; all if empty.
        on_request: When the operation ``sweep`` answers: after its tick is folded, or at its end; None if the operation
            does not run this sweep.
    """

    name: str
    schedule: Schedule
    work: str
    views: tuple[str, ...] = ()
    on_request: Literal["tick", "end"] | None = None


def _nightly(hour: int, minute: int = 0) -> Schedule:
    return Schedule(DAY_MS, hour * _HOUR_MS + minute * _HOUR_MS // 60)


# the times: contract §6 (decay), §11, §12, §13, and conflict 7 (index); health follows the decay
DECAY: Final = Sweep(
    "decay",
    _nightly(3),
    "lets the importance of entries and drawers decay and prunes drawers",
    ("entries", "importance"),
    "tick",
)
HEALTH: Final = Sweep("health", _nightly(3, 30), "measures the health of the memory", ("health", "entries"), "tick")
INDEX: Final = Sweep("index", Schedule(6 * _HOUR_MS, 0), "embeds entries that have no vector", ("vectors",), "tick")
COMPACTION: Final = Sweep("compaction", _nightly(3), "archives old entries of noisy types", on_request="end")
CONSOLIDATION: Final = Sweep(
    "consolidation",
    Schedule(6 * _HOUR_MS, _HOUR_MS),
    "finds rules and lessons in new entries; `crew-journal consolidate` runs it on request",
)
REFLECTION: Final = Sweep("reflection", _nightly(5), "finds facts that contradict each other", on_request="end")
PEER_CARDS: Final = Sweep("peer_cards", _nightly(4), "refreshes the cards that agents have of people", on_request="end")
OPERATORS: Final = Sweep("operators", _nightly(5), "refreshes the models of operators", on_request="end")
ALL_SWEEPS: Final = (DECAY, HEALTH, INDEX, COMPACTION, CONSOLIDATION, REFLECTION, PEER_CARDS, OPERATORS)
ON_REQUEST: Final = {sweep.name: sweep for sweep in ALL_SWEEPS if sweep.on_request}
"""By name: the sweeps that the operation ``sweep`` runs."""
if TYPE_CHECKING:  # mypy accepts no computed Literal
    SweepName = str
    RequestedSweep = str
else:
    SweepName = Literal[*(sweep.name for sweep in ALL_SWEEPS)]
    RequestedSweep = Literal[*ON_REQUEST]

VERSIONS_DUE: Final = Schedule(DAY_MS, 4 * _HOUR_MS + _HOUR_MS // 4)
"""Schedule of the sweep of old versions in workspaces that set a retention; its result is an event, so it has no tick."""
MOST_MISSED: Final = 31
"""Maximum number of missed due times that are run after a downtime, the newest: a month of daily sweeps. Older ones are
not needed, because each decay starts from the base.
"""


def due_times(schedule: Schedule, after_ms: int, until_ms: int, most: int = MOST_MISSED) -> list[int]:
    """The newest ``most`` due times in (``after_ms``, ``until_ms``], ascending, in milliseconds."""
    first = (after_ms - schedule.offset_ms) // schedule.period_ms + 1
    last = (until_ms - schedule.offset_ms) // schedule.period_ms
    return [n * schedule.period_ms + schedule.offset_ms for n in range(max(first, last - most + 1), last + 1)]
