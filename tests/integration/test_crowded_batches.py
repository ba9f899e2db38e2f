"""A client that opens atomic batches and commits none takes every place for them; nobody else has to wait for that."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs
from support.journal import DEADLINE_S, journal_rig
from support.nats import nats_agent, nats_binary

from crew_journal.schemas.events import headers as h
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.services.journal.broker.broker import ManagedBroker

SCOUT, PASSWORD = nats_agent("scout-nats", workspace_id="w1", agent_id="scout", crew_id="red")
OWN = "journal.w1.red.scout.note"
AT_ONCE = 60
"""Batches opened every 50 ms: more than the 50 the server keeps open."""
LARGE = bytes(100_000)
"""So large that the writer waits for the socket in the middle of a list, while others begin theirs."""


@pytest.fixture(autouse=True)
def _knows_batches() -> None:
    if not nats_binary().has_atomic_batches:
        pytest.skip("servers before 2.12 know no batches, so nobody can open one")


def message(name: str, body: bytes = b"{}") -> OutgoingMessage:
    return OutgoingMessage("journal.w2._._.note", body, {h.MSG_ID: f"w2/{name}"})


@asynccontextmanager
async def hostile_agent(broker: ManagedBroker) -> AsyncIterator[None]:
    """Holds every place for batches until the block is left, on its own subject alone."""
    await broker.set_agent_users([SCOUT])
    client = Client()
    await client.connect(broker.url, user=SCOUT.name, password=PASSWORD)
    full = asyncio.Event()

    async def open_batches() -> None:
        while True:
            for _ in range(AT_ONCE):
                headers = {"Nats-Batch-Id": secrets.token_hex(8), "Nats-Batch-Sequence": "1"}
                await client.publish(OWN, b"{}", headers=headers)
            await client.flush()
            full.set()
            await asyncio.sleep(0.05)

    attack = asyncio.create_task(open_batches())
    try:
        await full.wait()
        yield
    finally:
        attack.cancel()
        await asyncio.gather(attack, return_exceptions=True)
        await client.close()


async def test_lists_and_concurrent_entries_are_stored_while_others_hold_every_place(broker: ManagedBroker) -> None:
    async with journal_rig(broker, group_commit=True, deadline_s=20.0) as rig, hostile_agent(broker):
        with capture_logs() as logs:
            listed = await rig.writer.publish_atomic([message(f"list-{n}") for n in range(200)])
            grouped = await asyncio.gather(
                *(rig.writer.publish(m.subject, m.body, m.headers) for m in (message(f"one-{n}") for n in range(100)))
            )
        assert {ack.seq for ack in [*listed, *grouped]} == set(range(1, 301))
        assert not any(ack.duplicate for ack in [*listed, *grouped])
        told = [log for log in logs if log["event"] == "writer.batches_crowded_out"]
        assert len(told) == 1  # once, with the true reason
        assert "do not commit" in told[0]["reason"]
        assert rig.writer.crowding.figures()["crowded_since"] is not None
        assert rig.writer.crowding.refused >= 3
        assert await rig.count() == 300  # nothing of what was not committed


async def test_batches_are_taken_again_when_the_places_are_free(
    broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crew_journal.services.journal.crowding.PAUSE_S", 0.0)
    async with journal_rig(broker) as rig:
        async with hostile_agent(broker):
            await rig.writer.publish_atomic([message(f"during-{n}") for n in range(2)])
            assert rig.writer.crowding.figures()["crowded_since"] is not None
        # the server forgets what was left open for 10 s
        number, deadline = 0, time.monotonic() + DEADLINE_S
        while rig.writer.crowding.figures()["crowded_since"] is not None:
            assert time.monotonic() < deadline
            number += 1
            await rig.writer.publish_atomic([message(f"after-{number}-{n}") for n in range(2)])


async def test_more_lists_at_once_than_the_server_keeps_open_crowd_nobody_out(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        lists = [[message(f"{name}-{n}", LARGE) for n in range(10)] for name in range(AT_ONCE)]
        acked = await asyncio.gather(*(rig.writer.publish_atomic(one) for one in lists))
        for acks in acked:
            assert [ack.seq for ack in acks] == list(range(acks[0].seq, acks[0].seq + 10))
        assert rig.writer.crowding.refused == 0
