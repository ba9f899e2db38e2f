"""Appending through the journal to a real nats-server: idempotency, conflicts, batches, control entries."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import orjson
import pytest
from support.journal import ADMIN, AGENT, LEAD, NOW, Rig, eventually, journal_rig, note
from support.nats import nats_binary

from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import EntryConflict, EntryTooLarge, InvalidEntry, NotAllowed
from crew_journal.schemas.core.ports import Identity
from crew_journal.schemas.decode import decode
from crew_journal.schemas.recall.events import PriorityChanged
from crew_journal.schemas.sweeps.events import SweepTicked
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.intake.append import Appended, Journal
from crew_journal.services.journal.intake.secrets import SecretGuard
from crew_journal.services.journal.intake.submission import Accepted, accept


async def events(rig: Rig) -> list[EntryRecorded]:
    found = []
    for seq, message in enumerate(await rig.stored(), 1):
        event = decode(seq, message.subject, message.headers, message.data, 0)
        assert isinstance(event, EntryRecorded)
        found.append(event)
    return found


async def test_what_is_appended_is_decoded_again_with_the_token_s_crew_and_agent(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        appended = await rig.journal.append(AGENT, note("Deployed\nit", payload={"a": [1, None]}, trace_id=""))
        [event] = await events(rig)
        entry = event.entry
        assert (entry.id, event.seq, appended.duplicate) == (appended.id, appended.seq, False)
        assert (entry.workspace_id, entry.crew_id, entry.agent_id) == ("acme", "red", "scout")
        assert (entry.summary, entry.payload, entry.trace_id, entry.ts) == ("Deployed it", {"a": [1, None]}, None, NOW)
        assert not event.control


async def test_the_same_id_with_the_same_content_returns_the_first_sequence(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        first = await rig.journal.append(AGENT, note(id="e1"))
        await rig.journal.append(AGENT, note())
        assert await rig.journal.append(AGENT, note(id="e1", trace_id=None)) == Appended("e1", first.seq, True)
        assert await rig.count() == 2


async def test_the_same_id_with_other_content_is_a_conflict_naming_it(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await rig.journal.append(AGENT, note(id="e1"))
        with pytest.raises(EntryConflict, match="e1"):
            await rig.journal.append(AGENT, note("other", id="e1"))
        with pytest.raises(EntryConflict):
            await rig.journal.append(LEAD, note(id="e1"))  # the same words of another agent are another entry
        assert await rig.count() == 1


async def test_a_repeat_within_the_window_is_known_after_a_restart_of_the_service(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        first = await rig.journal.append(AGENT, note(id="e1"))
        restarted = Journal(rig.writer, rig.ids, clock=lambda: NOW)  # remembers nothing; the views are behind
        assert await restarted.append(AGENT, note(id="e1")) == Appended("e1", first.seq, True)
        again = Journal(rig.writer, rig.ids, clock=lambda: NOW)
        with pytest.raises(EntryConflict, match="e1"):
            await again.append(AGENT, note("other", id="e1"))
        third = Journal(rig.writer, rig.ids, clock=lambda: NOW)
        outcome = await third.append_batch(AGENT, [note("a"), note(id="e1"), note("b")])
        assert [a.duplicate for a in outcome] == [False, True, False]
        fourth = Journal(rig.writer, rig.ids, clock=lambda: NOW)
        with pytest.raises(EntryConflict, match="e1"):
            await fourth.append_batch(AGENT, [note("c"), note("other", id="e1")])


async def test_a_repeat_beyond_the_window_is_known_from_the_views(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await rig.journal.append(AGENT, note(id="e1"))
        [event] = await events(rig)
        await rig.client.jetstream().delete_msg("JOURNAL", 1)
        later = Journal(rig.writer, rig.ids, clock=lambda: NOW)
        rig.ids.known["acme", "old"] = Identity(77, event.content)
        rig.ids.known["acme", "e1"] = Identity(1, event.content)
        assert await later.append(AGENT, note(id="e1")) == Appended("e1", 1, True)
        with pytest.raises(EntryConflict, match="old"):
            await later.append(AGENT, note("other", id="old"))
        with pytest.raises(EntryConflict, match="old, e1"):
            await later.append_batch(AGENT, [note("x"), note("y", id="old"), note("z", id="e1")])
        assert await rig.count() == 0, "nothing of the batch was published"


async def test_an_id_whose_message_was_erased_cannot_be_used_again(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await rig.journal.append(AGENT, note(id="e1"))
        await rig.client.jetstream().delete_msg("JOURNAL", 1)
        later = Journal(rig.writer, rig.ids, clock=lambda: NOW)
        with pytest.raises(EntryConflict, match="erased"):
            await later.append(AGENT, note(id="e1"))


FOREIGN = [
    ("journal.rival.red.scout.run.completed", {"id": "x1", "summary": "theirs"}),
    ("journal.acme.red.scout.run.completed", {"id": "x1", "summary": "the same subject, another id"}),
    ("journal.rival.red.scout.run.completed", "no entry at all"),
]


@pytest.mark.parametrize(("subject", "body"), FOREIGN)
@pytest.mark.parametrize("deceit", [{}, {"Status": "404"}])
async def test_a_strangers_message_with_our_message_id_swallows_no_entry(
    broker: ManagedBroker, subject: str, body: object, deceit: dict[str, str]
) -> None:
    async with journal_rig(broker) as rig:
        mine = accept(AGENT, note(id="e1"), NOW)
        claims = {h.MSG_ID: "acme/e1", h.CONTENT_HASH: mine.content, h.ENTRY_ID: "e1", **deceit}
        await rig.client.jetstream().publish(subject, orjson.dumps(body), headers=claims)
        appended = await rig.journal.append(AGENT, note(id="e1"))
        assert appended == Appended("e1", 2, False)
        stored = (await rig.stored())[1]
        event = decode(2, stored.subject, stored.headers, stored.data, 0)
        assert isinstance(event, EntryRecorded)
        assert (event.entry.id, event.content.hex()) == ("e1", mine.content)
        assert await rig.journal.append(AGENT, note(id="e1")) == Appended("e1", 2, True)
        with pytest.raises(EntryConflict):
            await rig.journal.append(AGENT, note("other", id="e1"))


async def test_a_strangers_message_with_our_message_id_swallows_no_entry_of_a_batch(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        for n in (1, 3):
            claims = {h.MSG_ID: f"acme/e{n}"}
            await rig.client.jetstream().publish("journal.rival.red.scout.note", b"{}", headers=claims)
        outcome = await rig.journal.append_batch(AGENT, [note(f"n {n}", id=f"e{n}") for n in range(5)])
        assert [(a.id, a.duplicate) for a in outcome] == [(f"e{n}", False) for n in range(5)]
        stored = await rig.stored()
        assert [orjson.loads(stored[a.seq - 1].data)["summary"] for a in outcome] == [f"n {n}" for n in range(5)]


async def test_a_forged_content_hash_under_another_subject_is_a_conflict(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        claims = {h.MSG_ID: "acme/e1", h.CONTENT_HASH: accept(AGENT, note(id="e1"), NOW).content}
        body = orjson.dumps({"id": "e1", "summary": "taken"})
        await rig.client.jetstream().publish("journal.acme.red.other.note", body, headers=claims)
        with pytest.raises(EntryConflict, match="e1"):
            await rig.journal.append(AGENT, note(id="e1"))


@pytest.mark.parametrize("group_commit", [False, True])
async def test_of_two_contents_for_one_id_at_the_same_moment_only_one_is_acked(
    broker: ManagedBroker, group_commit: bool
) -> None:
    async with journal_rig(broker, group_commit=group_commit) as rig:
        attempts = [rig.journal.append(AGENT, note(f"content {n % 2}", id=f"e{n // 4}")) for n in range(400)]
        batches = [rig.journal.append_batch(AGENT, [note("content 2", id=f"e{n}") for n in range(100)])]
        outcomes = await asyncio.gather(*attempts, *batches, return_exceptions=True)
        contents = {e.entry.id: e.entry.summary for e in await events(rig)}
        assert await rig.count() == 100
        for n, outcome in enumerate(outcomes[:400]):
            if isinstance(outcome, Appended):
                assert contents[outcome.id] == f"content {n % 2}"
            else:
                assert isinstance(outcome, EntryConflict)
        assert isinstance(outcomes[400], EntryConflict)


async def test_a_batch_names_every_problem_and_publishes_nothing(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        batch: list[dict[str, Any]] = [
            note(),
            note(severity="loud"),
            {"summary": "x"},
            note(ts="yesterday", nonsense=1),
        ]
        with pytest.raises(InvalidEntry) as caught:
            await rig.journal.append_batch(AGENT, batch)
        fields = [problem.field for problem in caught.value.problems]
        assert sorted(fields) == [
            "entries[1].severity",
            "entries[2].entry_type",
            "entries[3].nonsense",
            "entries[3].ts",
        ]
        with pytest.raises(NotAllowed) as refused:
            await rig.journal.append_batch(AGENT, [note(), note(priority="pin")])
        assert refused.value.field == "entries[1].priority"
        with pytest.raises(EntryTooLarge, match=r"entries\[1\]"):
            await rig.journal.append_batch(AGENT, [note(), note(payload={"x": "y" * 300_000})])
        with pytest.raises(EntryTooLarge, match="1,001"):
            await rig.journal.append_batch(AGENT, [note()] * 1_001)
        assert await rig.count() == 0
        assert await rig.journal.append_batch(AGENT, []) == []


async def test_a_batch_that_repeats_an_id_publishes_it_once_or_refuses_other_content(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        done = await rig.journal.append_batch(AGENT, [note(id="a"), note("b"), note(id="a")])
        assert (done[0].seq, done[0].duplicate, done[2].seq, done[2].duplicate) == (1, False, 1, True)
        assert await rig.count() == 2
        with pytest.raises(InvalidEntry) as caught:
            await rig.journal.append_batch(AGENT, [note(id="c"), note("other", id="c")])
        assert caught.value.problems[0].field == "entries[1].id"
        assert await rig.count() == 2


async def test_others_get_the_event_loop_between_the_large_entries_of_a_batch(
    broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    entry = SecretGuard.entry

    async def noted(guard: SecretGuard, accepted: Accepted, prefix: str = "") -> tuple[Accepted, str | None]:
        checked.append("entry")
        return await entry(guard, accepted, prefix)

    async def other() -> None:
        while len(checked) < 40:
            checked.append("other")
            await asyncio.sleep(0)

    monkeypatch.setattr(SecretGuard, "entry", noted)
    async with journal_rig(broker) as rig:
        batch = [note(payload={"text": "the key of the token " * 1_500}) for _ in range(20)]
        await asyncio.gather(rig.journal.append_batch(AGENT, batch), other())
        longest = max(len(run) for run in "".join(one[0] for one in checked).split("o"))
        assert longest <= 3
        assert await rig.count() == 20


@pytest.mark.parametrize("atomic", [None, False])
async def test_a_batch_answers_in_order_with_old_and_new_servers(broker: ManagedBroker, atomic: bool | None) -> None:
    async with journal_rig(broker, atomic=atomic) as rig:
        done = await rig.journal.append_batch(AGENT, [note(f"n {n}") for n in range(1_000)])
        by_seq = {event.seq: event.entry for event in await events(rig)}
        assert [by_seq[a.seq].id for a in done] == [a.id for a in done]
        assert [by_seq[a.seq].summary for a in done] == [f"n {n}" for n in range(1_000)]
        assert rig.writer.atomic is (atomic is None and nats_binary().has_atomic_batches)


async def test_priorities_and_operators_types_of_an_admin_go_to_control(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        await rig.journal.append(ADMIN, note(priority="pin", crew_id="red", agent_id="scout"))
        await rig.journal.append(ADMIN, {"entry_type": "memory.consolidated", "summary": "merged"})
        one, two = await events(rig)
        assert one.control
        assert two.control
        assert (one.entry.crew_id, one.entry.agent_id) == ("red", "scout")


async def test_a_recorded_decision_is_a_control_entry_and_recorded_once(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        tick = SweepTicked(sweep="decay", due="2026-11-21T00:00:00Z")
        first = await rig.journal.record("_system", tick, summary="Sweep", entry_id="d_1")
        assert await rig.journal.record("_system", tick, summary="Sweep", entry_id="d_1") == Appended(
            "d_1", first.seq, True
        )
        with pytest.raises(EntryConflict):
            await rig.journal.record("_system", tick, summary="Another", entry_id="d_1")
        change = PriorityChanged(target_entry_id="e", previous_priority="normal", new_priority="pin", reason="why")
        await rig.journal.record("acme", change, summary="Pinned", actor_id="ops")
        sweep, pinned = await events(rig)
        assert sweep.control
        assert (sweep.entry.entry_type, sweep.entry.payload) == ("sweep.ticked", tick.model_dump(mode="json"))
        assert (pinned.workspace_id, pinned.entry.payload["new_priority"]) == ("acme", "pin")


async def test_a_broker_killed_in_the_middle_of_five_thousand_appends_loses_none_that_was_acked(
    broker: ManagedBroker,
) -> None:
    async with journal_rig(broker) as rig:
        acked: list[Appended] = []
        numbers = iter(range(5_000))

        async def work() -> None:
            for n in numbers:
                given = {"id": f"e{n}"} if n % 2 else {}
                acked.append(await rig.journal.append(AGENT, note(f"n {n}", **given)))

        load = asyncio.gather(*(work() for _ in range(256)))
        await eventually(lambda: len(acked) >= 1_500, "some are acked")
        pid = broker.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await load
        stored = await rig.stored()
        ids = [(m.headers or {})[h.ENTRY_ID] for m in stored]
        assert len(ids) == len(set(ids)) == len(acked) == 5_000
        for appended in acked:
            assert ids[appended.seq - 1] == appended.id == orjson.loads(stored[appended.seq - 1].data)["id"]
