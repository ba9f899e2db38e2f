"""Bulk replay from a real nats-server."""

from __future__ import annotations

import asyncio

import pytest
from support.journal import AGENT, Rig, journal_rig, note
from support.nats import connected

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.services.journal.broker.broker import ManagedBroker


async def fill(rig: Rig, count: int) -> None:
    for start in range(0, count, 1_000):
        size = min(1_000, count - start)
        await rig.journal.append_batch(AGENT, [note(f"entry {start + n}") for n in range(size)])


async def collect(rig: Rig, first: int, last: int, batch: int = 700) -> list[RawMessage]:
    return [message async for part in replay(rig.client, first, last, batch=batch) for message in part]


async def test_a_replay_yields_every_message_once_in_order_with_headers_and_times(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 6_500)
        parts = [part async for part in replay(rig.client, 1, 10**9, batch=700)]
        assert [len(part) for part in parts] == [700] * 9 + [200]
        messages = [message for part in parts for message in part]
        assert [message.seq for message in messages] == list(range(1, 6_501))
        stored = await rig.client.jetstream().get_msg("JOURNAL", seq=4_321)
        found = messages[4_320]
        assert (found.subject, found.data, found.headers) == (stored.subject, stored.data, stored.headers)
        assert found.headers is not None
        assert found.headers[h.MSG_ID].startswith("acme/j_")
        assert stored.time is not None
        assert found.published_ms == to_ms(stored.time)


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(5, 9, [5, 6, 7, 8, 9]), (9, 9, [9]), (11, 20, []), (7, 3, [])]
)
async def test_a_replay_keeps_to_its_bounds(broker: ManagedBroker, first: int, last: int, expected: list[int]) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 10)
        assert [message.seq for message in await collect(rig, first, last)] == expected


async def test_any_client_of_nats_py_replays_the_same(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig, connected(broker) as plain:
        await fill(rig, 3_000)
        await rig.client.jetstream().publish("journal.acme._.scout.note", b"{}", headers={"A": "b: c"})
        await rig.client.jetstream().publish("journal.acme._.scout.note", b"")
        one = await collect(rig, 1, 10**9)
        two = [message async for part in replay(plain, 1, 10**9) for message in part]
        assert one == two
        assert [message.headers for message in one[-2:]] == [{"A": "b: c"}, None]


async def test_an_empty_stream_replays_nothing(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        assert await collect(rig, 1, 10) == []


async def test_deleted_sequences_are_left_out_wherever_they_are(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 12)
        js = rig.client.jetstream()
        for seq in (1, 2, 6, 7, 11, 12):
            await js.delete_msg("JOURNAL", seq)
        assert [m.seq for m in await collect(rig, 1, 12)] == [3, 4, 5, 8, 9, 10]
        assert [m.seq for m in await collect(rig, 5, 7)] == [5]
        assert await collect(rig, 6, 7) == []
        assert await collect(rig, 11, 12) == []


async def test_a_replay_goes_on_after_the_broker_was_restarted_in_the_middle(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 12_000)
        seen: list[int] = []
        async for part in replay(rig.client, 1, 12_000, batch=500):
            seen += [message.seq for message in part]
            if len(seen) == 3_000:
                await broker.stop()
                await broker.start()
        assert seen == list(range(1, 12_001))


async def test_a_replay_goes_on_after_its_consumer_was_deleted(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 12_000)
        js = rig.client.jetstream()
        seen: list[int] = []
        async for part in replay(rig.client, 1, 12_000, batch=500):
            seen += [message.seq for message in part]
            if len(seen) == 2_000:
                for info in await js.consumers_info("JOURNAL"):
                    await js.delete_consumer("JOURNAL", info.name)
        assert seen == list(range(1, 12_001))


async def test_a_finished_or_abandoned_replay_leaves_no_consumer_behind(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 3_000)
        await collect(rig, 1, 3_000)
        abandoned = replay(rig.client, 1, 3_000, batch=100)
        await anext(abandoned)
        await abandoned.aclose()
        assert await rig.client.jetstream().consumers_info("JOURNAL") == []


async def test_two_replays_at_once_do_not_disturb_each_other(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 5_000)
        one, two = await asyncio.gather(collect(rig, 1, 5_000), collect(rig, 1_000, 4_000, batch=5_000))
        assert [m.seq for m in one] == list(range(1, 5_001))
        assert [m.seq for m in two] == list(range(1_000, 4_001))


async def test_headers_that_are_not_ascii_are_read_as_text(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        js = rig.client.jetstream()
        await js.publish("journal.acme._.scout.note", b"{}", headers={h.CONTENT_HASH: "äöü", "X-Other": "plain"})
        [message] = await collect(rig, 1, 1)
        assert message.headers is not None
        assert all(type(value) is str for value in message.headers.values())
        assert message.headers["X-Other"] == "plain"
