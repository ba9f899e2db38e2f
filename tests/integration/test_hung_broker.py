"""A broker that hangs (SIGSTOP): shown long before it is replaced, and replaced after a stated time, with nothing lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from support.external import external_broker
from support.journal import DEADLINE_S
from support.patience import LATE_S
from support.running import running_node
from support.stack import HTTP_TIMEOUT_S

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal import watch as heartbeat
from crew_journal.services.journal.watch import HUNG_LOOKS

ENTRY = {"entry_type": "run.completed", "workspace_id": "acme"}


@pytest.fixture(autouse=True)
def usual_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other tests stretch."""
    monkeypatch.setattr(heartbeat, "LATE_S", LATE_S)


async def readiness(http: httpx.AsyncClient, wanted: int) -> str:
    """What ``/readyz`` says once it answers ``wanted``."""
    began = time.monotonic()
    while True:
        answer = await http.get("/readyz")
        waited_s = time.monotonic() - began
        if answer.status_code == wanted:
            return answer.text
        assert waited_s < DEADLINE_S, f"{answer.status_code} after {waited_s:.1f} s: {answer.text}"
        await asyncio.sleep(0.02)


async def test_a_hung_broker_shows_before_it_is_replaced_with_nothing_lost(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, durability="durable") as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token, timeout_s=DEADLINE_S) as journal,
        httpx.AsyncClient(base_url=runtime.http_url, trust_env=False, timeout=HTTP_TIMEOUT_S) as http,
    ):
        before = await journal.append_batch([{**ENTRY, "summary": f"before {n}"} for n in range(300)])
        assert runtime._link is not None
        broker = runtime._link.managed
        assert broker is not None
        hung = broker.status().pid
        assert hung is not None
        await readiness(http, 200)

        os.kill(hung, signal.SIGSTOP)
        said = await readiness(http, 503)
        assert re.search(rf"the broker has not answered for \d+ s; it is replaced after {HUNG_LOOKS} s", said)
        os.kill(hung, signal.SIGCONT)  # a pause is no reason to replace it
        await readiness(http, 200)
        assert (broker.status().pid, broker.status().restarts) == (hung, 0)

        os.kill(hung, signal.SIGSTOP)
        await readiness(http, 503)
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
            httpx.AsyncClient(base_url=runtime.http_url, trust_env=False, timeout=HTTP_TIMEOUT_S) as http,
        ):
            await readiness(http, 200)
            assert theirs.process is not None
            theirs.process.send_signal(signal.SIGSTOP)
            try:
                said = await readiness(http, 503)
            finally:
                theirs.process.send_signal(signal.SIGCONT)
            assert "the broker has not answered" in said
            assert "replaced" not in said
            await readiness(http, 200)
