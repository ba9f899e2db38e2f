"""A node gives freed memory back when it is at rest and has grown, and at no other time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from crew_journal.schemas.settings import GIVE_BACK_GROWTH_BYTES, REST_CPU_SHARE, REST_LOOK_S
from crew_journal.services.operate.history import resident_bytes
from crew_journal.services.runtime.node import Resting

NEEDED = 300 << 20
FREED = 2 * GIVE_BACK_GROWTH_BYTES


@dataclass
class Machine:
    """A process whose time, CPU and memory the test moves."""

    now: float = 0.0
    cpu: float = 0.0
    resident: int | None = NEEDED + FREED
    given: int = 0
    fails: bool = False

    async def give_back(self) -> None:
        if self.fails:
            raise OSError("not now")
        self.given += 1
        self.resident = NEEDED

    def resting(self) -> Resting:
        return Resting(self.give_back, resident=lambda: self.resident, cpu=lambda: self.cpu, clock=lambda: self.now)

    def passes(self, share: float) -> None:
        """One interval in which ``share`` of a core was used."""
        self.now += REST_LOOK_S
        self.cpu += share * REST_LOOK_S


async def test_it_waits_until_the_work_is_over() -> None:
    machine = Machine()
    resting = machine.resting()
    for _ in range(3):
        machine.passes(2 * REST_CPU_SHARE)
        assert not await resting.look()
    machine.passes(REST_CPU_SHARE / 2)
    assert await resting.look()
    assert machine.given == 1


async def test_what_is_needed_is_not_asked_for_again_until_the_process_has_grown() -> None:
    machine = Machine()
    resting = machine.resting()
    machine.passes(0)
    assert await resting.look()
    for growth, worth in ((0, False), (GIVE_BACK_GROWTH_BYTES - 1, False), (GIVE_BACK_GROWTH_BYTES, True)):
        machine.resident = NEEDED + growth
        machine.passes(0)
        assert await resting.look() is worth
    assert machine.given == 2


async def test_a_system_that_does_not_tell_its_memory_is_left_alone() -> None:
    machine = Machine(resident=None)
    resting = machine.resting()
    machine.passes(0)
    assert not await resting.look()
    assert machine.given == 0


async def test_a_failure_is_survived_and_tried_again_only_after_more_growth() -> None:
    machine = Machine(fails=True)
    resting = machine.resting()
    machine.passes(0)
    assert await resting.look()
    machine.fails = False
    machine.passes(0)
    assert not await resting.look()
    machine.resident = NEEDED + FREED + GIVE_BACK_GROWTH_BYTES
    machine.passes(0)
    assert await resting.look()
    assert machine.given == 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says it there")
def test_the_memory_of_this_process_is_plausible() -> None:
    known = resident_bytes()
    assert known is not None
    assert 20 << 20 < known < 16 << 30
