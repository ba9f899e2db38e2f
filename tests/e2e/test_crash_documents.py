"""Many writers append to one document while the service and its broker are killed: each acked line is in it once, in order.

A line whose ack was not heard is sent again with its write id, as a client would; what was sent after another's ack stands
behind it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from support.processes import Stack
from support.schedule import KillSchedule

GIVE_UP_S = 240.0
PAUSE_S = 0.02
PLACE = {"tier": "topics", "key": "log", "crew_id": "night"}


@dataclass
class Writers:
    """Writers of one topic, and what they were told.

    Attributes:
        acked: Line → its sequence.
        floors: Line → the highest sequence that was acked before it was sent first.
    """

    stack: Stack
    count: int
    acked: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    highest: int = 0
    stopped: bool = False

    async def run(self) -> None:
        """Write until ``stopped``."""
        await asyncio.gather(*(self._write(number) for number in range(self.count)))

    async def until_acked(self, count: int) -> None:
        """Wait for so many acks."""
        async with asyncio.timeout(GIVE_UP_S):
            while len(self.acked) < count:  # noqa: ASYNC110  # the writers set no event
                await asyncio.sleep(PAUSE_S)

    async def _write(self, writer: int) -> None:
        number = 0
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            while not self.stopped:
                line = f"- w{writer} n{number}"
                self.floors[line] = self.highest
                self.acked[line] = await self._acked(client, line)
                self.highest = max(self.highest, self.acked[line])
                number += 1

    async def _acked(self, client: httpx.AsyncClient, line: str) -> int:
        asked = {**PLACE, "mode": "append", "content": line, "write_id": line[2:].replace(" ", "-")}
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            said = self.stack.runtime()
            if said is not None:
                try:
                    headers = {"Authorization": f"Bearer {self.stack.token}"}
                    answer = await client.post(f"{said.http}/memory/write", json=asked, headers=headers)
                    if answer.status_code == 201:
                        return int(answer.json()["seq"])
                    assert answer.status_code == 503, answer.text
                except httpx.HTTPError:
                    pass  # the service is gone; nothing is known of the line
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError(f"no ack for {GIVE_UP_S:g} s")


async def write_through_crashes(tmp_path: Path, writers: int, kills: int, seed: int) -> None:
    """Let writers append while the service dies ``kills`` times, sometimes with its broker."""
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        document = Writers(stack, writers)
        writing = asyncio.create_task(document.run())
        for instant in KillSchedule(seed, kills):
            await document.until_acked(len(document.acked) + min(instant.acks, 2 * writers))
            instant.elapse()
            stack.kill()
            if instant.with_broker or kills == 1:
                stack.signal_nats(signal.SIGKILL)
            await asyncio.to_thread(stack.up)
        await document.until_acked(len(document.acked) + writers)
        document.stopped = True
        await writing
        check_each_line_once_in_order(stack, document)
        verified = stack.run("verify", "--json")
        assert verified.code == 0, verified.out
        assert stack.terminate() == 0


def check_each_line_once_in_order(stack: Stack, document: Writers) -> None:
    answer = httpx.get(
        f"{stack.url}/v1/memory/document",
        params={**PLACE, "min_seq": document.highest},
        headers={"Authorization": f"Bearer {stack.token}"},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    lines = answer.json()["content"].splitlines()
    assert sorted(lines) == sorted(document.acked)
    assert lines == sorted(document.acked, key=document.acked.__getitem__)
    early = {line: seq for line, seq in document.acked.items() if seq <= document.floors[line]}
    assert not early, f"stands before what was acked when it was sent: {next(iter(early))}"


async def test_kill_9_of_service_and_broker_loses_and_doubles_no_line_of_a_document(tmp_path: Path) -> None:
    await write_through_crashes(tmp_path, writers=16, kills=1, seed=21)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
async def test_kill_9_ten_times_under_64_writers_of_one_document(tmp_path: Path) -> None:
    await write_through_crashes(tmp_path, writers=64, kills=10, seed=22)
