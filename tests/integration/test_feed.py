"""The live feed on a real nats-server: order, redelivery, a deleted durable, a failing handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from nats.js.errors import NotFoundError
from support.journal import AGENT, DEADLINE_S, Rig, eventually, journal_rig, note

from crew_journal.consumers.feed.live import CatchUp, LiveFeed
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.schemas.settings import BATCH_WAIT_S
from crew_journal.schemas.sweeps.events import SweepTicked
from crew_journal.services.journal.broker.broker import ManagedBroker


class Views:
    """A handler with a checkpoint, as the host is one."""

    def __init__(self, checkpoint: int = 0) -> None:
        self.checkpoint = checkpoint
        self.folded: list[int] = []
        self.batches: list[list[int]] = []
        self.failing: set[int] = set()
        self.failures = 0

    async def handle(self, messages: list[RawMessage]) -> None:
        seqs = [message.seq for message in messages]
        self.batches.append(seqs)
        if self.failing.intersection(seqs):
            self.failures += 1
            raise OSError("the disk is full")
        self.folded += [seq for seq in seqs if seq > self.checkpoint]
        self.checkpoint = max(self.checkpoint, seqs[-1])


@asynccontextmanager
async def feeding(
    rig: Rig,
    views: Views,
    start_seq: int | None = None,
    *,
    batch_wait_s: float = BATCH_WAIT_S,
    patience_s: float = 0.0,
    awaited: Callable[[int, int], bool] = lambda _first, _last: False,
    catch_up: CatchUp | None = None,
) -> AsyncIterator[LiveFeed]:
    feed = LiveFeed(
        rig.broker.url,
        rig.broker.user,
        rig.broker.password,
        handler=views.handle,
        start_seq=views.checkpoint + 1 if start_seq is None else start_seq,
        durable="views",
        catch_up=catch_up,
        batch_wait_s=batch_wait_s,
        patience_s=patience_s,
        awaited=awaited,
        watch_s=0.1,
    )
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop()


async def fill(rig: Rig, count: int) -> None:
    for start in range(0, count, 1_000):
        await rig.journal.append_batch(AGENT, [note(f"n {start + n}") for n in range(min(1_000, count - start))])


async def ack_floor(rig: Rig) -> int:
    floor = (await rig.client.jetstream().consumer_info("JOURNAL", "views")).ack_floor
    assert floor is not None
    return int(floor.stream_seq)


async def floor_reaches(rig: Rig, seq: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await ack_floor(rig) != seq:  # noqa: ASYNC110  # the broker has no event for it
            await asyncio.sleep(0.01)


async def test_every_message_reaches_the_handler_once_in_order_and_the_last_is_acked(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        await fill(rig, 1_500)
        async with feeding(rig, views) as feed:
            await fill(rig, 2_000)
            await eventually(lambda: views.checkpoint == 3_500, "all is folded")
            assert views.folded == list(range(1, 3_501))
            assert max(len(batch) for batch in views.batches) <= 1_000
            await floor_reaches(rig, 3_500)
            await eventually(lambda: feed.status().lag == 0, "the lag is told")
            assert (feed.status().state, feed.status().seq, feed.status().last_error) == ("running", 3_500, None)
        assert feed.status().state == "stopped"


async def test_a_feed_that_agrees_with_its_durable_goes_on_where_it_was(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        await fill(rig, 100)
        async with feeding(rig, views):
            await eventually(lambda: views.checkpoint == 100, "all is folded")
            await floor_reaches(rig, 100)
        created = (await rig.client.jetstream().consumer_info("JOURNAL", "views")).created
        await fill(rig, 50)
        async with feeding(rig, views):
            await eventually(lambda: views.checkpoint == 150, "the rest is folded")
        assert (await rig.client.jetstream().consumer_info("JOURNAL", "views")).created == created
        assert views.folded == list(range(1, 151))


async def test_where_durable_and_checkpoint_disagree_the_checkpoint_is_the_truth(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await fill(rig, 100)
        ahead = Views()
        async with feeding(rig, ahead):
            await eventually(lambda: ahead.checkpoint == 100, "all is folded")
            await floor_reaches(rig, 100)
        behind = Views(checkpoint=40)  # the crash came after the ack and before the commit, or a file was restored
        async with feeding(rig, behind):
            await eventually(lambda: behind.checkpoint == 100, "what the ack hid is folded")
        assert behind.folded == list(range(41, 101))
        further = Views(checkpoint=90)
        async with feeding(rig, further, start_seq=91):
            await eventually(lambda: further.checkpoint == 100, "and forwards too")
        assert further.batches[0][0] == 91


async def test_a_failed_batch_is_tried_again_before_anything_later_and_nothing_is_acked(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        await fill(rig, 10)
        async with feeding(rig, views) as feed:
            await eventually(lambda: views.checkpoint == 10, "the first ten are folded")
            await floor_reaches(rig, 10)
            views.failing = {13}
            await fill(rig, 5)
            await eventually(lambda: views.failures >= 2, "the handler fails twice")
            await fill(rig, 500)
            status = feed.status()
            assert status.state == "waiting"
            assert status.since is not None
            assert "the disk is full" in (status.last_error or "")
            assert views.checkpoint < 13
            await floor_reaches(rig, views.checkpoint)
            views.failing = set()
            await eventually(lambda: views.checkpoint == 515, "all is folded once the disk is free")
            assert views.folded == list(range(1, 516))
            await eventually(lambda: feed.status().state == "running", "the trouble is over")


async def test_a_feed_with_a_failing_handler_stops_at_once_and_leaves_the_batch(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        views.failing = {1}
        await fill(rig, 3)
        async with feeding(rig, views):
            await eventually(lambda: views.failures >= 1, "the handler fails")
        views.failing = set()
        async with feeding(rig, views):
            await eventually(lambda: views.checkpoint == 3, "a later run folds it without waiting for the ack wait")
        assert views.folded == [1, 2, 3]


async def test_a_deleted_durable_is_created_again_and_nothing_is_missed_or_repeated(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        await fill(rig, 50)
        async with feeding(rig, views) as feed:
            await eventually(lambda: views.checkpoint == 50, "the first are folded")
            await rig.client.jetstream().delete_consumer("JOURNAL", "views")
            await fill(rig, 70)
            await eventually(lambda: views.checkpoint == 120, "it goes on after the deletion")
            assert views.folded == list(range(1, 121))
            assert feed.status().recreated == 1


async def test_a_durable_deleted_under_load_loses_nothing(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views):
            load = asyncio.create_task(fill(rig, 8_000))
            for at in (500, 2_500, 4_500):
                await eventually(lambda at=at: views.checkpoint >= at, f"{at} are folded")  # type: ignore[misc]
                try:
                    await rig.client.jetstream().delete_consumer("JOURNAL", "views")
                except NotFoundError:
                    continue
            await load
            await eventually(lambda: views.checkpoint == 8_000, "all is folded")
        assert views.folded == list(range(1, 8_001))


async def test_a_restarted_broker_loses_and_reorders_nothing(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views) as feed:
            load = asyncio.create_task(fill(rig, 6_000))
            await eventually(lambda: views.checkpoint >= 1_000, "some are folded")
            await broker.stop()
            await eventually(lambda: feed.status().state == "waiting", "the loss is visible")
            await broker.start()
            await load
            await eventually(lambda: views.checkpoint == 6_000, "all is folded")
            await eventually(lambda: feed.status().state == "running", "and the trouble is over")
        assert views.folded == list(range(1, 6_001))


async def test_a_feed_stops_while_its_broker_is_down(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views) as feed:
            await fill(rig, 10)
            await eventually(lambda: views.checkpoint == 10, "all is folded")
            await broker.stop()
            await eventually(lambda: feed.status().state == "waiting", "the loss is visible")
            await feed.stop()
            assert feed.status().state == "stopped"
        await broker.start()


async def test_deliveries_that_somebody_else_pulled_are_read_from_the_stream(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views):
            await fill(rig, 10)
            await eventually(lambda: views.checkpoint == 10, "the first are folded")
            thief = await rig.client.jetstream().pull_subscribe_bind(consumer="views", stream="JOURNAL")
            stealing = asyncio.create_task(thief.fetch(5, timeout=DEADLINE_S))
            while not stealing.done():  # the feed's standing request, which comes first, expires after some seconds
                await fill(rig, 1)
                await asyncio.wait({stealing}, timeout=0.1)
            assert stealing.result()
            total = await rig.count()
            await eventually(lambda: views.checkpoint == total, "what was stolen came, too")
            assert views.folded == list(range(1, total + 1))


@pytest.mark.parametrize("status", ["404", "100", "409", "500"])
async def test_a_message_that_imitates_a_status_of_the_server_stops_no_reader(
    broker: ManagedBroker, status: str
) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        js = rig.client.jetstream()
        async with feeding(rig, views) as feed:
            await fill(rig, 3)
            await js.publish("journal.acme._.scout.note", b"{}", headers={"Status": status})
            await fill(rig, 3)
            await eventually(lambda: views.checkpoint == 7, "what came after it is folded")
            await js.publish("journal.acme._.scout.note", b"{}", headers={"Status": status})  # nothing comes after it
            await eventually(lambda: views.checkpoint == 8, "the last one is folded")
            await fill(rig, 3)
            await eventually(lambda: views.checkpoint == 11, "the feed goes on")
            assert feed.status().recreated <= 2
        assert views.folded == list(range(1, 12))


async def test_lone_messages_arrive_at_once_and_none_is_lost_on_the_way(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views) as feed:
            for n in range(1, 101):
                await rig.journal.append(AGENT, note(f"n {n}"))
                await eventually(lambda n=n: views.checkpoint == n, f"{n} is folded")  # type: ignore[misc]
            assert feed.status().recreated == 0
        assert views.folded == list(range(1, 101))


async def test_a_lone_message_does_not_wait_for_its_batch_to_fill(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views, batch_wait_s=2 * DEADLINE_S):
            async with asyncio.timeout(DEADLINE_S):
                await rig.journal.append(AGENT, note("the only one"))
                while views.checkpoint < 1:  # noqa: ASYNC110  # the handler tells nobody
                    await asyncio.sleep(0.005)


async def test_messages_that_trickle_in_share_batches(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        async with feeding(rig, views, batch_wait_s=1.0):
            began = asyncio.get_running_loop().time()
            for n in range(1, 41):
                await rig.journal.append(AGENT, note(f"n {n}"))
            await eventually(lambda: views.checkpoint == 40, "all are folded")
            took_s = asyncio.get_running_loop().time() - began
        assert views.folded == list(range(1, 41))
        assert len(views.batches) <= 6 + took_s, "a busy machine needs more seconds, but a batch still takes one"


async def test_entries_wait_for_a_task_that_waits_for_one_of_them_or_for_a_decision(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views, waited_for = Views(), 0

        def awaited(first: int, last: int) -> bool:
            return first <= waited_for <= last

        async with feeding(rig, views, batch_wait_s=0.0, patience_s=2 * DEADLINE_S, awaited=awaited) as feed:
            await rig.journal.append(AGENT, note("the first is folded at once"))
            await eventually(lambda: views.checkpoint == 1, "the first is folded")
            await fill(rig, 1)
            await fill(rig, 1)
            waited_for = 3
            feed.look()
            await eventually(lambda: views.checkpoint == 3, "what is waited for is folded")
            await fill(rig, 1)
            tick = SweepTicked(sweep="decay", due="2026-11-21T00:00:00Z")
            await rig.journal.record("_system", tick, summary="a decision")
            await eventually(lambda: views.checkpoint == 5, "the decision is folded")
        assert views.batches == [[1], [2, 3], [4, 5]]


async def test_a_feed_far_behind_catches_up_in_bulk_and_goes_on_live(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        reached: list[int] = []
        failures = 1

        async def catch_up(last_seq: int, progress: Callable[[int, int], None]) -> None:
            nonlocal failures
            start = views.checkpoint
            async for batch in replay(rig.client, start + 1, last_seq, batch=1_000):
                await views.handle(batch)
                progress(views.checkpoint - start, last_seq - start)
                if failures and views.checkpoint > 4_000:
                    failures -= 1
                    raise OSError("the disk is full")
            reached.append(last_seq)

        await fill(rig, 9_000)
        async with feeding(rig, views, catch_up=catch_up) as feed:
            load = asyncio.create_task(fill(rig, 3_000))
            await load
            await eventually(lambda: views.checkpoint == 12_000, "all is folded")
            assert reached
            await fill(rig, 30)
            await eventually(lambda: views.checkpoint == 12_030, "the feed goes on live")
            await floor_reaches(rig, 12_030)
            await eventually(lambda: feed.status().lag == 0, "the feed knows that it is at the end")
            assert (feed.status().state, feed.status().seq, feed.status().lag) == ("running", 12_030, 0)
        assert not failures
        assert views.folded == list(range(1, 12_031))


async def test_a_poison_message_is_handed_to_the_handler_like_any_other(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        views = Views()
        js = rig.client.jetstream()
        await js.publish("journal.acme._.scout.note", b"\xff no json")
        await js.publish("journal.acme._.scout.note", b"")
        await fill(rig, 3)
        async with feeding(rig, views):
            await eventually(lambda: views.checkpoint == 5, "it is the host that judges")
        assert views.folded == [1, 2, 3, 4, 5]
