"""When to kill: a seeded schedule, so that a failure can be repeated as nearly as two processes allow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

LEAST_ACKS = 50
MOST_ACKS = 600
MOST_DELAY_S = 0.06
"""Longer than a fold's batch may wait, so that every step between publish and ack is hit."""
WITH_BROKER = 0.3
"""Share of kills of the service that take the broker with them, as a crash of the machine would."""


@dataclass(frozen=True)
class Instant:
    """One kill: after ``acks`` more acks and ``delay_s`` seconds; ``with_broker`` if the broker dies too."""

    acks: int
    delay_s: float
    with_broker: bool

    def elapse(self) -> None:
        """Let the delay pass: it is the fault's own instant, not a wait for anything."""
        until = time.perf_counter() + self.delay_s
        while time.perf_counter() < until:
            pass


@dataclass(frozen=True)
class KillSchedule:
    """``kills`` instants of a seed."""

    seed: int
    kills: int

    def __iter__(self) -> Iterator[Instant]:
        rng = random.Random(self.seed)
        for _ in range(self.kills):
            yield Instant(rng.randint(LEAST_ACKS, MOST_ACKS), rng.random() * MOST_DELAY_S, rng.random() < WITH_BROKER)
