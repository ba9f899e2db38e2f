"""A broker that answers while its journal takes no writes is restarted; no other broker is."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crew_journal.schemas.settings import FREE_DISK_FLOOR_BYTES
from crew_journal.services.journal.watch import PAUSE_LOOKS, STALLED_LOOKS, StallWatch

Usage = namedtuple("Usage", "free")


class World:
    """The parts the watch looks at, as they are when a disk was full and has room again."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *, ours: bool = True) -> None:
        self.writer: Any = SimpleNamespace(in_flight=1, acked=7)
        self.canary: Any = SimpleNamespace(outcome=SimpleNamespace(ok=True))
        self.stream: Any = SimpleNamespace(trouble=None)
        self.free = FREE_DISK_FLOOR_BYTES
        self.restarts = 0
        monkeypatch.setattr("crew_journal.services.journal.watch.shutil.disk_usage", lambda _path: Usage(self.free))
        broker: Any = SimpleNamespace(restart=self.restart) if ours else None
        self.watch = StallWatch(self.writer, self.canary, self.stream, broker, path)  # type: ignore[arg-type]

    async def restart(self) -> None:
        self.restarts += 1

    async def look(self, times: int) -> None:
        for _ in range(times):
            await self.watch.look()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_a_broker_that_stores_nothing_is_restarted_once_the_disk_has_room(world: World) -> None:
    world.free = FREE_DISK_FLOOR_BYTES - 1
    await world.look(STALLED_LOOKS)
    assert world.restarts == 0
    assert "takes no writes" in (world.watch.trouble or "")
    world.free = FREE_DISK_FLOOR_BYTES
    await world.look(1)
    assert world.restarts == 1


async def test_an_ack_in_between_is_no_stall(world: World) -> None:
    await world.look(STALLED_LOOKS - 1)
    world.writer.acked += 1
    await world.look(STALLED_LOOKS - 1)
    assert world.watch.trouble is None
    assert world.restarts == 0


async def test_a_stall_watch_without_waiting_writes_reports_no_trouble(world: World) -> None:
    world.writer.in_flight = 0
    await world.look(3 * STALLED_LOOKS)
    assert world.watch.trouble is None
    assert world.restarts == 0


async def test_a_trouble_stays_until_a_write_is_acked(world: World) -> None:
    await world.look(STALLED_LOOKS)
    world.writer.in_flight = 0  # who waited has given up
    await world.look(STALLED_LOOKS)
    assert world.watch.trouble is not None
    world.writer.acked += 1
    await world.look(1)
    assert world.watch.trouble is None


@pytest.mark.parametrize("wrong", ["canary", "stream"])
async def test_what_others_report_is_not_mended_by_a_restart(world: World, wrong: str) -> None:
    if wrong == "canary":
        world.canary.outcome.ok = False
    else:
        world.stream.trouble = "another stream"
    await world.look(3 * STALLED_LOOKS)
    assert world.restarts == 0
    assert world.watch.trouble is None


async def test_restarts_that_do_not_help_become_rarer(world: World) -> None:
    await world.look(STALLED_LOOKS + PAUSE_LOOKS)
    assert world.restarts == 2
    await world.look(2 * PAUSE_LOOKS - 1)
    assert world.restarts == 2
    await world.look(1)
    assert world.restarts == 3


async def test_a_broker_that_is_not_ours_is_left_alone_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, ours=False)
    await world.look(3 * STALLED_LOOKS)
    assert world.watch.trouble is not None
