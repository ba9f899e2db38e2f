"""The pipelined writer against a real nats-server: acks, retries, refusals, restarts, batches."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.api import StreamConfig
from support.faults import stop
from support.journal import DEADLINE_S, eventually, journal_rig
from support.nats import connected, nats_binary
from support.stack import until

from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.errors import BrokerError, BrokerUnavailable, EntryTooLarge, StorageFull
from crew_journal.schemas.core.ports import Published
from crew_journal.schemas.settings import FREE_DISK_FLOOR_BYTES, PUBLISH_DEADLINE_S
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.publishing import EncodedMessage, Writer, WrongLastSequence
from crew_journal.services.journal.watch import disk_trouble

SUBJECT = "journal.acme.red.scout.note"


def message(name: str, body: bytes = b"{}") -> OutgoingMessage:
    return OutgoingMessage(SUBJECT, body, {h.MSG_ID: f"acme/{name}", h.ENTRY_ID: name})


async def test_a_publish_returns_its_own_sequence_and_a_repeat_the_first_one(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        published = await asyncio.gather(
            *(rig.writer.publish(SUBJECT, str(n).encode(), {h.MSG_ID: f"acme/{n}"}) for n in range(3_000))
        )
        stored = await rig.stored()
        for n, ack in enumerate(published):
            assert not ack.duplicate
            assert stored[ack.seq - 1].data == str(n).encode()
        again = await rig.writer.publish(SUBJECT, b"7", {h.MSG_ID: "acme/7"})
        assert again == Published(published[7].seq, duplicate=True)
        assert rig.writer.in_flight == 0


async def test_headers_arrive_as_given(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        headers = {h.MSG_ID: "acme/x", h.MODEL: "nomic-embed-text:v1.5", h.TEXT_HASH: "a: b"}
        ack = await rig.writer.publish(SUBJECT, b"\x00\xff", headers)
        stored = await rig.client.jetstream().get_msg("JOURNAL", seq=ack.seq)
        assert (stored.headers.pop(h.SALT, None) is not None, stored.headers) == (True, headers)
        assert stored.data == b"\x00\xff"


@pytest.mark.parametrize("value", ["a\r\nNats-Rollup: all", "a\nb", "ä"])
async def test_text_in_a_header_cannot_write_headers_of_its_own(broker: ManagedBroker, value: str) -> None:
    async with journal_rig(broker) as rig:
        with pytest.raises(BrokerError, match="line break"):
            await rig.writer.publish(SUBJECT, b"", {h.MSG_ID: value})
        with pytest.raises(BrokerError, match="subject"):
            await rig.writer.publish(f"journal.{value}", b"", {h.MSG_ID: "a"})
        assert rig.writer.in_flight == 0
        assert await rig.count() == 0


async def test_a_message_above_the_broker_s_limit_is_refused_and_the_connection_lives(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        body = b"x" * rig.client.max_payload
        with pytest.raises(EntryTooLarge):
            await rig.writer.publish(SUBJECT, body, {h.MSG_ID: "acme/a"})
        with pytest.raises(EntryTooLarge):
            await rig.writer.publish_atomic([message("b"), message("c", body)])
        assert (await rig.writer.publish(SUBJECT, b"y", {h.MSG_ID: "acme/d"})).seq == 1
        assert rig.client.state.reconnects == 0


async def test_a_subject_no_stream_takes_is_unavailable_after_the_deadline(broker: ManagedBroker) -> None:
    async with journal_rig(broker, deadline_s=0.5) as rig:
        with pytest.raises(BrokerUnavailable, match="no stream takes"):
            await rig.writer.publish("nowhere.x", b"", {h.MSG_ID: "a"})


async def test_a_stream_that_appears_within_the_deadline_takes_the_message(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        waiting = asyncio.create_task(rig.writer.publish("later.x", b"", {h.MSG_ID: "a"}))
        await eventually(lambda: rig.writer.in_flight == 1, "it is in flight")
        await rig.client.jetstream().add_stream(StreamConfig(name="LATER", subjects=["later.>"]))
        assert (await waiting).seq == 1


async def test_a_full_stream_is_reported_as_an_error_of_the_broker(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        js = rig.client.jetstream()
        await js.add_stream(name="SMALL", subjects=["small.>"], max_msgs=1, discard="new")
        await rig.writer.publish("small.x", b"1", {h.MSG_ID: "1"})
        with pytest.raises(BrokerError, match="maximum messages exceeded"):
            await rig.writer.publish("small.x", b"2", {h.MSG_ID: "2"})


async def test_a_broker_whose_storage_is_used_up_says_so_and_what_to_do(tmp_path: Path) -> None:
    broker = ManagedBroker(tmp_path, nats_binary(), "interval", max_store_bytes=200_000)
    await broker.start()
    try:
        async with journal_rig(broker) as rig:
            body = b"x" * 20_000
            many = [rig.writer.publish(SUBJECT, body, {h.MSG_ID: f"acme/{n}"}) for n in range(20)]
            with pytest.raises(StorageFull, match=r"storage is full: .* \(10\d+\)") as refused:
                await asyncio.gather(*many)
            assert "free disk space" in refused.value.hint
            with pytest.raises(StorageFull):
                await rig.writer.publish_atomic([message(f"b{n}", body) for n in range(20)])
    finally:
        await broker.stop()


@pytest.mark.parametrize("group_commit", [False, True], ids=["single", "group"])
async def test_a_write_that_a_broker_with_a_full_disk_never_answers_fails_with_the_disk_s_trouble(
    broker: ManagedBroker, group_commit: bool
) -> None:
    """nats-server 2.15.1 answers nothing then; stopped, it does the same."""

    def full() -> StorageFull:
        return StorageFull("the disk is full", hint="free some")

    async with journal_rig(broker, deadline_s=0.6, window=60, group_commit=group_commit, storage=full) as rig:
        pid = broker.status().pid
        assert pid is not None
        await stop(pid)
        try:
            outcomes = await asyncio.gather(
                *(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: f"acme/{n}"}) for n in range(120)),
                rig.writer.publish_atomic([message("x"), message("y")]),
                return_exceptions=True,
            )
        finally:
            os.kill(pid, signal.SIGCONT)
    assert {type(outcome) for outcome in outcomes} == {StorageFull}


async def test_a_write_that_waits_behind_an_unanswered_group_gives_up_at_its_own_deadline(
    broker: ManagedBroker,
) -> None:
    async with journal_rig(broker, deadline_s=3.0, group_commit=True) as rig:
        loop, pid = asyncio.get_running_loop(), broker.status().pid
        assert pid is not None
        await stop(pid)
        try:
            given_up: list[float] = []
            first = asyncio.create_task(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: "acme/1"}))
            first.add_done_callback(lambda _: given_up.append(loop.time()))
            await until(lambda: bool(rig.writer._flights))  # the first group is on its way
            with pytest.raises(BrokerUnavailable):
                await rig.writer.publish(SUBJECT, b"", {h.MSG_ID: "acme/2"})
            with pytest.raises(BrokerUnavailable):
                await first
            later_s = loop.time() - given_up[0]
        finally:
            os.kill(pid, signal.SIGCONT)
    assert later_s < 3.0, "a group of its own would have begun then, with a deadline of its own"


def test_a_disk_without_room_is_named_and_one_that_cannot_be_asked_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = FREE_DISK_FLOOR_BYTES - 1
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=free))
    trouble = disk_trouble(tmp_path)
    assert trouble is not None
    assert f"{free >> 20} MiB are free" in trouble.message
    assert str(tmp_path) not in str(trouble), "everybody may read it"
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=FREE_DISK_FLOOR_BYTES))
    assert disk_trouble(tmp_path) is None
    monkeypatch.undo()
    assert disk_trouble(tmp_path / "gone") is None


async def test_the_window_holds_callers_back_and_cancelled_ones_leave_no_trace(broker: ManagedBroker) -> None:
    async with journal_rig(broker, window=4) as rig:
        await broker.stop()
        tasks = [asyncio.create_task(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: f"acme/{n}"})) for n in range(12)]
        await eventually(lambda: rig.writer.in_flight == 4, "the window is full")
        for task in [*tasks[:3], *tasks[6:9]]:  # some in flight, some waiting for a place
            task.cancel()
        await asyncio.wait([*tasks[:3], *tasks[6:9]])
        await broker.start()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(outcome, Published) for outcome in done) == 6
        assert rig.writer.in_flight == 0
        await asyncio.gather(*(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: f"acme/b{n}"}) for n in range(20)))
        assert rig.writer.in_flight == 0


async def test_a_broker_that_stays_away_makes_appends_unavailable_after_the_deadline(broker: ManagedBroker) -> None:
    async with journal_rig(broker, deadline_s=0.6, window=2) as rig:
        await broker.stop()
        started = asyncio.get_running_loop().time()
        outcomes = await asyncio.gather(
            *(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: f"acme/{n}"}) for n in range(6)),
            rig.writer.publish_atomic([message("x"), message("y")]),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, BrokerUnavailable) for outcome in outcomes)
        assert asyncio.get_running_loop().time() - started < PUBLISH_DEADLINE_S / 2


async def check_acked_are_stored(rig: Any, acks: list[tuple[str, Published]]) -> None:
    stored = await rig.stored()
    ids = [(m.headers or {})[h.MSG_ID] for m in stored]
    assert len(set(ids)) == len(ids), "nothing is stored twice"
    for name, ack in acks:
        assert ids[ack.seq - 1] == name


@pytest.mark.parametrize("group_commit", [False, True])
async def test_a_killed_broker_loses_no_acked_message_and_doubles_none(
    broker: ManagedBroker, group_commit: bool
) -> None:
    async with journal_rig(broker, group_commit=group_commit) as rig:
        acks: list[tuple[str, Published]] = []
        names = iter(range(5_000))

        async def work() -> None:
            for n in names:
                name = f"acme/{n}"
                acks.append((name, await rig.writer.publish(SUBJECT, b"x" * 300, {h.MSG_ID: name})))

        load = asyncio.gather(*(work() for _ in range(256)))
        for at in (800, 2_500):
            await eventually(lambda at=at: len(acks) >= at, f"{at} are acked")  # type: ignore[misc]
            restarts = broker.status().restarts
            pid = broker.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda r=restarts: broker.status().restarts > r, "the supervisor restarts it")  # type: ignore[misc]
        await load
        assert len(acks) == 5_000
        await check_acked_are_stored(rig, acks)
        assert await rig.count() == 5_000


@pytest.mark.parametrize("atomic", [None, False])
async def test_batches_survive_a_killed_broker_whole(broker: ManagedBroker, atomic: bool | None) -> None:
    async with journal_rig(broker, atomic=atomic) as rig:
        acks: list[tuple[str, Published]] = []

        async def work(worker: int) -> None:
            for n in range(10):
                batch = [message(f"{worker}-{n}-{i}", b"x" * 300) for i in range(100)]
                published = await rig.writer.publish_atomic(batch)
                acks.extend((m.headers[h.MSG_ID], p) for m, p in zip(batch, published, strict=True))

        load = asyncio.gather(*(work(n) for n in range(4)))
        await eventually(lambda: len(acks) >= 1_000, "some are acked")
        await broker.stop()
        await broker.start()
        await load
        await check_acked_are_stored(rig, acks)
        assert await rig.count() == 4_000


async def test_a_batch_is_stored_contiguously_in_its_order_with_its_sequences(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        assert rig.writer.atomic is nats_binary().has_atomic_batches
        published = await rig.writer.publish_atomic([message(f"m{n}") for n in range(1_000)])
        assert [ack.seq for ack in published] == list(range(1, 1_001))
        assert [(m.headers or {})[h.ENTRY_ID] for m in await rig.stored()] == [f"m{n}" for n in range(1_000)]


async def test_a_batch_with_a_known_id_is_published_singly_and_tells_the_first_sequence(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        first = await rig.writer.publish(SUBJECT, b"", {h.MSG_ID: "acme/m1"})
        published = await rig.writer.publish_atomic([message("m0"), message("m1"), message("m2")])
        assert [ack.duplicate for ack in published] == [False, True, False]
        assert published[1].seq == first.seq
        assert await rig.count() == 3


async def test_a_longer_list_than_a_batch_holds_is_several_batches(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        published = await rig.writer.publish_atomic([message(f"m{n}") for n in range(2_300)])
        assert [ack.seq for ack in published] == list(range(1, 2_301))


async def test_a_list_waits_while_other_nodes_hold_every_place_for_batches(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig, connected(broker) as other:
        left = [{"Nats-Batch-Id": f"left{n}", "Nats-Batch-Sequence": "1"} for n in range(60)]
        await asyncio.gather(*(other.request(SUBJECT, b"{}", headers=one, timeout=DEADLINE_S) for one in left))
        # 50 of them are open now, for 10 s
        published = await rig.writer.publish_atomic([message("m0"), message("m1")])
        assert published[1].seq == published[0].seq + 1


async def test_a_group_commit_gives_every_caller_its_own_sequence(broker: ManagedBroker) -> None:
    async with journal_rig(broker, group_commit=True) as rig:
        first = await asyncio.gather(
            *(rig.writer.publish(SUBJECT, str(n).encode(), {h.MSG_ID: f"acme/{n}"}) for n in range(700))
        )
        stored = await rig.stored()
        assert [stored[ack.seq - 1].data for ack in first] == [str(n).encode() for n in range(700)]
        again = await asyncio.gather(
            *(rig.writer.publish(SUBJECT, str(n).encode(), {h.MSG_ID: f"acme/{n}"}) for n in range(600, 800))
        )
        assert [ack.duplicate for ack in again] == [True] * 100 + [False] * 100
        assert [ack.seq for ack in again[:100]] == [ack.seq for ack in first[600:]]


async def test_close_waits_for_what_is_in_flight_and_takes_no_more(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        tasks = [asyncio.create_task(rig.writer.publish(SUBJECT, b"", {h.MSG_ID: f"acme/{n}"})) for n in range(500)]
        await asyncio.sleep(0)  # every task runs up to its ack; looking for it later could come too late
        assert rig.writer.in_flight == 500
        await rig.writer.close()
        assert all(task.done() and task.exception() is None for task in tasks)
        with pytest.raises(BrokerUnavailable, match="closed"):
            await rig.writer.publish(SUBJECT, b"", {h.MSG_ID: "acme/late"})


async def test_a_dead_letter_among_group_commits_goes_its_own_way(broker: ManagedBroker) -> None:
    async with journal_rig(broker, group_commit=True) as rig:
        letter = OutgoingMessage("deadletter.entries.acme", b"{}", {h.MSG_ID: "acme/letter"})
        messages = [message(f"m{n}") for n in range(150)]
        messages.insert(75, letter)
        published = await asyncio.gather(*(rig.writer.publish(m.subject, m.body, m.headers) for m in messages))
        assert published.pop(75) == Published(1, False)
        assert sorted(p.seq for p in published) == list(range(1, 151))


async def test_a_message_that_is_too_large_fails_alone_in_its_group(broker: ManagedBroker) -> None:
    async with journal_rig(broker, group_commit=True) as rig:
        messages = [message(f"m{n}") for n in range(100)]
        messages.insert(50, message("large", b"x" * rig.client.max_payload))
        outcomes = await asyncio.gather(
            *(rig.writer.publish(m.subject, m.body, m.headers) for m in messages), return_exceptions=True
        )
        assert isinstance(outcomes.pop(50), EntryTooLarge)
        assert sorted(o.seq for o in outcomes if isinstance(o, Published)) == list(range(1, 101))


async def test_a_message_that_expects_a_sequence_is_refused_naming_the_present_one(broker: ManagedBroker) -> None:
    def encoded(name: str) -> EncodedMessage:
        return EncodedMessage.of(message(name))

    async with journal_rig(broker) as rig:
        first = await rig.writer.post_expecting(encoded("a"), 0)
        await rig.writer.publish("journal.acme.red.scout.other", b"", {h.MSG_ID: "acme/other"})
        with pytest.raises(WrongLastSequence) as refused:
            await rig.writer.post_expecting(encoded("b"), 0)
        assert refused.value.last_seq == first.seq
        assert (await rig.writer.post_expecting(encoded("b"), first.seq)).seq == first.seq + 2


async def test_a_message_whose_ack_is_lost_is_refused_with_its_own_id(
    broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bytes] = []
    hear = Writer._on_ack

    def lose_the_first(self: Writer, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        answers.append(data)
        if len(answers) > 1:
            hear(self, subject, reply, data, headers)

    monkeypatch.setattr(Writer, "_on_ack", lose_the_first)
    async with journal_rig(broker, ack_timeout_s=0.1) as rig:
        with pytest.raises(WrongLastSequence) as refused:
            await rig.writer.post_expecting(EncodedMessage.of(message("a")), 0)
        assert refused.value.last_seq == 1
        assert len(answers) >= 2, "one was lost"
        assert await rig.count() == 1
