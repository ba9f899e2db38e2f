"""Divides the tokens of a prompt by the phase of the run.

Invariant: pure; the parts never sum to more than the total. Other parts get the tokens that a part does not use
(``assembly``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TOTAL_DEFAULT: Final = 8_000
SYSTEM_DEFAULT: Final = 500


class Phase(StrEnum):
    """The phase of a run, by its step."""

    PLANNING = "planning"
    EXECUTING = "executing"
    REVIEWING = "reviewing"


class MemoryKind(StrEnum):
    """The kinds of memory, in the order in which they stay at equal salience."""

    WORKING = "working"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    EPISODIC = "episodic"


# The shares of a phase sum to 90 percent: the rest is left free for the error of an estimate and the model's own framing.
USER_PERCENT: Final = 25
MEMORY_PERCENT: Final = {Phase.PLANNING: 45, Phase.EXECUTING: 40, Phase.REVIEWING: 50}
TOOLS_PERCENT: Final = {Phase.PLANNING: 20, Phase.EXECUTING: 25, Phase.REVIEWING: 15}
MEMORY_PARTS: Final = {
    MemoryKind.SEMANTIC: 18,
    MemoryKind.EPISODIC: 12,
    MemoryKind.WORKING: 6,
    MemoryKind.PROCEDURAL: 4,
}
"""Shares of the room of memory that are reserved for each kind."""
_PLANNING_UNTIL: Final = 0.25
_REVIEWING_FROM: Final = 0.75


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens of a whole prompt, and those reserved for system and safety instructions.

    Raises:
        ValueError: If nothing is left beside the system's.
    """

    total: int = TOTAL_DEFAULT
    system: int = SYSTEM_DEFAULT

    def __post_init__(self) -> None:
        """Check them."""
        if self.system < 0 or self.system >= self.total:
            raise ValueError(
                f"{self.system} tokens are reserved for the system, the budget has {self.total}: "
                "give the budget more or the system fewer, at least 0"
            )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Tokens of each part of a prompt."""

    system: int
    user: int
    memory: int
    tools: int
    slack: int


def phase_of(step: int | None, max_steps: int | None) -> Phase:
    """The phase of a step, counted from 0: planning in the first quarter, reviewing in the last; executing if not known."""
    if step is None or not max_steps:
        return Phase.EXECUTING
    done = step / max_steps
    if done < _PLANNING_UNTIL:
        return Phase.PLANNING
    return Phase.REVIEWING if done >= _REVIEWING_FROM else Phase.EXECUTING


def allocate(total: int, system: int, phase: Phase) -> Allocation:
    """The parts of a budget; the rest from rounding goes to the slack."""
    rest = total - system
    user, memory, tools = (
        rest * percent // 100 for percent in (USER_PERCENT, MEMORY_PERCENT[phase], TOOLS_PERCENT[phase])
    )
    return Allocation(system, user, memory, tools, rest - user - memory - tools)


def certain_of(room: int) -> dict[MemoryKind, int]:
    """The tokens that are reserved for each kind of memory."""
    total = sum(MEMORY_PARTS.values())
    return {kind: room * part // total for kind, part in MEMORY_PARTS.items()}
