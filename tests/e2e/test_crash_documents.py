"""Many writers append to one document while the service and its broker are killed: each acked line is in it once, in order.

Every second writer uses the Python client, the others HTTP. A line whose ack was not heard is sent again with its write id;
what was sent after another's ack stands behind it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.processes import Stack
from support.schedule import KillSchedule

from crew_journal import AsyncCrewJournal
from crew_journal.schemas.core.errors import Unavailable

GIVE_UP_S = 240.0
PAUSE_S = 0.02
Send = Callable[[str, httpx.AsyncClient, dict[str, Any]], Awaitable[int | None]]
PLACE = {"tier": "topics", "key": "log", "crew_id": "night"}


@dataclass
class Writers:
    """Writers of one topic, and what they were told.

    Attributes:
        per_s: Lines a second of each writer; None for as many as it can.
        acked: Line → its sequence.
        floors: Line → the highest sequence that was acked before it was sent first.
    """

    stack: Stack
    count: int
    per_s: float | None = None
    acked: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    clients: dict[str, AsyncCrewJournal] = field(default_factory=dict)
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
        began = time.monotonic()
        send = self._by_client if writer % 2 else self._by_http
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            while not self.stopped:
                if self.per_s is not None:
                    await asyncio.sleep(max(0.0, began + number / self.per_s - time.monotonic()))
                line = f"- w{writer} n{number}"
                self.floors[line] = self.highest
                self.acked[line] = await self._acked(send, http, line)
                self.highest = max(self.highest, self.acked[line])
                number += 1

    async def _acked(self, send: Send, http: httpx.AsyncClient, line: str) -> int:
        asked = {**PLACE, "mode": "append", "content": line, "write_id": line[2:].replace(" ", "-")}
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            said = self.stack.runtime()
            if said is not None and (seq := await send(said.http, http, asked)) is not None:
                return seq
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError(f"no ack for {GIVE_UP_S:g} s")

    async def _by_http(self, url: str, http: httpx.AsyncClient, asked: dict[str, Any]) -> int | None:
        """The sequence; None if the service is gone, so that nothing is known of the line."""
        try:
            headers = {"Authorization": f"Bearer {self.stack.token}"}
            answer = await http.post(f"{url}/memory/write", json=asked, headers=headers)
        except httpx.HTTPError:
            return None
        assert answer.status_code in (201, 503), answer.text
        return int(answer.json()["seq"]) if answer.status_code == 201 else None

    async def _by_client(self, url: str, _http: httpx.AsyncClient, asked: dict[str, Any]) -> int | None:
        """As ``_by_http``."""
        if (known := self.clients.get(url)) is None:
            known = self.clients[url] = AsyncCrewJournal(url, self.stack.token)
        try:
            return (await known.document_write(**asked)).seq
        except Unavailable:
            return None


async def write_through_crashes(
    tmp_path: Path, writers: int, kills: int, seed: int, *, per_s: float | None = None, seconds: float = 0.0
) -> None:
    """Let writers append for ``seconds`` at least while the service dies ``kills`` times, sometimes with its broker."""
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        document = Writers(stack, writers, per_s)
        until = time.monotonic() + seconds
        writing = asyncio.create_task(document.run())
        for instant in KillSchedule(seed, kills):
            await document.until_acked(len(document.acked) + min(instant.acks, 2 * writers))
            instant.elapse()
            stack.kill()
            if instant.with_broker or kills == 1:
                stack.signal_nats(signal.SIGKILL)
            await asyncio.to_thread(stack.up)
        await document.until_acked(len(document.acked) + writers)
        while time.monotonic() < until:
            await document.until_acked(len(document.acked) + writers)
        document.stopped = True
        await writing
        for client in document.clients.values():
            await client.close()
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
    await write_through_crashes(tmp_path, writers=16, kills=1, seed=21, per_s=10)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
async def test_64_writers_of_ten_lines_a_second_for_half_a_minute_lose_nothing_to_three_kills(tmp_path: Path) -> None:
    await write_through_crashes(tmp_path, writers=64, kills=3, seed=23, per_s=10, seconds=30)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
async def test_kill_9_ten_times_under_64_writers_of_one_document(tmp_path: Path) -> None:
    await write_through_crashes(tmp_path, writers=64, kills=10, seed=22)
