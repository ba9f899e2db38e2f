"""A broker that hangs (SIGSTOP): shown within three seconds, replaced after a stated time, with nothing lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import httpx
from support.external import external_broker
from support.journal import DEADLINE_S
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.watch.heartbeat import HUNG_LOOKS

SHOWN_WITHIN_S = 3.0
BUSY_S = 2.0
"""Seconds that a machine which is busy with other tests may add to a bound."""
ENTRY = {"entry_type": "run.completed", "workspace_id": "acme"}


async def readiness(http: httpx.AsyncClient, wanted: int, within_s: float = DEADLINE_S) -> tuple[str, float]:
    """What ``/readyz`` says once it answers ``wanted``, and after how many seconds."""
    began = time.monotonic()
    while True:
        answer = await http.get("/readyz")
        waited_s = time.monotonic() - began
        if answer.status_code == wanted:
            return answer.text, waited_s
        assert waited_s < within_s, f"{answer.status_code} after {waited_s:.1f} s: {answer.text}"
        await asyncio.sleep(0.02)


async def test_a_hung_broker_shows_within_three_seconds_and_is_replaced_with_nothing_lost(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, durability="durable") as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token, timeout_s=DEADLINE_S) as journal,
        httpx.AsyncClient(base_url=runtime.http_url, trust_env=False) as http,
    ):
        before = await journal.append_batch([{**ENTRY, "summary": f"before {n}"} for n in range(300)])
        assert runtime._link is not None
        broker = runtime._link.managed
        assert broker is not None
        hung = broker.status().pid
        assert hung is not None
        await readiness(http, 200)

        os.kill(hung, signal.SIGSTOP)
        said, _ = await readiness(http, 503, SHOWN_WITHIN_S + BUSY_S)
        assert re.search(rf"the broker has not answered for \d s; it is replaced after {HUNG_LOOKS} s", said)
        os.kill(hung, signal.SIGCONT)  # a pause is no reason to replace it
        await readiness(http, 200)
        assert (broker.status().pid, broker.status().restarts) == (hung, 0)

        os.kill(hung, signal.SIGSTOP)
        await readiness(http, 503, SHOWN_WITHIN_S + BUSY_S)
        during = await journal.append({**ENTRY, "summary": "during"})  # waits for its ack; the new broker gives it
        assert during.seq == before[-1].seq + 1
        await readiness(http, 200)
        assert broker.status().restarts == 1
        assert (await journal.count(workspace_id="acme", min_seq=during.seq)).count == 301
        verified = [record async for record in journal.verify()]
        assert "result" in verified[-1]


async def test_a_hung_broker_of_ones_own_shows_and_is_left_to_its_operator(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "theirs") as theirs:
        settings = {"nats": theirs.url, "nats_user": theirs.user, "nats_password": theirs.password}
        async with (
            running_node(tmp_path / "ours", **settings) as runtime,
            httpx.AsyncClient(base_url=runtime.http_url, trust_env=False) as http,
        ):
            await readiness(http, 200)
            assert theirs.process is not None
            theirs.process.send_signal(signal.SIGSTOP)
            try:
                said, _ = await readiness(http, 503, SHOWN_WITHIN_S + BUSY_S)
            finally:
                theirs.process.send_signal(signal.SIGCONT)
            assert "the broker has not answered" in said
            assert "replaced" not in said
            await readiness(http, 200)
