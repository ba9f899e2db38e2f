"""Dead letters and the canary on a real nats-server."""

from __future__ import annotations

import orjson
import pytest
from support.journal import ADMIN, AGENT, DEADLINE_S, Rig, eventually, journal_rig, note

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import InvalidQuery, NotFound
from crew_journal.schemas.core.ids import derived_id
from crew_journal.schemas.core.ports import Identity
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.watch import Canary
from crew_journal.services.operate.letters import PURPOSE, DeadLetters, workspace_of


async def raw(rig: Rig, seq: int) -> RawMessage:
    stored = await rig.client.jetstream().get_msg("JOURNAL", seq=seq)
    assert stored.time is not None
    return RawMessage(seq, stored.subject or "", stored.headers, stored.data or b"", to_ms(stored.time))


async def entry_at(rig: Rig, seq: int) -> EntryRecorded:
    message = await raw(rig, seq)
    event = decode(seq, message.subject, message.headers, message.data, message.published_ms)
    assert isinstance(event, EntryRecorded)
    return event


async def test_a_parked_event_is_kept_once_with_its_reason_and_recorded_once(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.journal.append(AGENT, note(id="e1"))
        message = await raw(rig, 1)
        for _ in range(2):  # the host crashed after parking and parks again
            await letters.park("entries", 3, message, "too strange:\n für uns")
        [letter] = [one async for one in letters.kept()]
        assert (letter.projection, letter.seq, letter.subject) == ("entries", 1, message.subject)
        assert (letter.workspace_id, letter.headers["Crew-Entry-Id"]) == ("acme", "e1")
        assert letter.headers["Crew-Dead-Reason"] == r"too strange: f\xfcr uns"
        assert await rig.count() == 2
        parked = await entry_at(rig, 2)
        assert (parked.workspace_id, parked.entry.entry_type) == ("acme", "projection.event_parked")
        assert (parked.entry.payload["seq"], parked.entry.payload["version"]) == (1, 3)


async def test_who_takes_the_id_of_a_parking_beforehand_stops_nothing(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        taken = derived_id(PURPOSE, 1, "parked/decode/2")
        squat = {"Nats-Msg-Id": f"acme/{taken}"}
        await rig.client.jetstream().publish(
            "journal.acme._.scout.note", orjson.dumps({"id": taken, "summary": "mine"}), headers=squat
        )
        await rig.client.jetstream().publish("journal.acme._.scout.note", b"no json")
        await letters.park("decode", 1, await raw(rig, 2), "no JSON")
        assert [letter.seq async for letter in letters.kept()] == [2]
        parked = await entry_at(rig, 3)
        assert (parked.control, parked.entry.payload["projection"], parked.entry.payload["seq"]) == (True, "decode", 2)
        assert parked.entry.id == taken, "an entry of an agent that bears it is none"


async def test_the_same_event_parked_by_two_projections_is_two_letters(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.journal.append(AGENT, note())
        message = await raw(rig, 1)
        await letters.park("entries", 1, message, "a")
        await letters.park("postings", 1, message, "b")
        assert [letter.projection async for letter in letters.kept()] == ["entries", "postings"]


async def test_a_message_of_no_workspace_is_recorded_in_the_system_s(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.client.jetstream().publish("journal._x.y", b"\xff")
        await letters.park("admission", 1, await raw(rig, 1), "breaks the grammar")
        parked = await entry_at(rig, 2)
        assert parked.workspace_id == "_system"
        [letter] = [one async for one in letters.kept()]
        assert (letter.workspace_id, letter.body) == ("_system", b"\xff")


async def test_a_retried_event_keeps_its_id_if_no_entry_has_it(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.journal.append(AGENT, note(id="e1", payload={"k": 1}))
        await letters.park("entries", 1, await raw(rig, 1), "why")
        new_seq = await letters.retry(await letters.find("entries", 1), actor_id="ops")
        assert new_seq == 3
        first, again = await entry_at(rig, 1), await entry_at(rig, 3)
        assert (again.entry, again.content) == (first.entry, first.content)
        recorded = await entry_at(rig, 4)
        assert recorded.entry.entry_type == "projection.dead_letter_retried"
        assert recorded.entry.payload == {"projection": "entries", "seq": 1, "new_seq": 3}
        assert [one async for one in letters.kept()] == []
        with pytest.raises(NotFound, match="the event at 1 is no longer kept"):
            await letters.find("entries", 1)


async def test_a_retried_event_whose_id_is_taken_gets_a_new_id_and_names_the_old_one(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.journal.append(AGENT, note("late and other", id="e1", refs={"mission": "m"}))
        rig.ids.known["acme", "e1"] = Identity(40, b"x" * 16)
        await letters.park("admission", 1, await raw(rig, 1), "the id is taken")
        again = await entry_at(rig, await letters.retry(await letters.find("admission", 1)))
        assert again.entry.id not in ("", "e1")
        assert again.entry.refs == {"mission": "m", "retried_from": "e1"}
        assert again.entry.summary == "late and other"


async def test_an_event_that_is_not_valid_in_itself_is_not_published_again(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.client.jetstream().publish("journal.acme._.scout.note", b"no json")
        await letters.park("admission", 1, await raw(rig, 1), "no JSON")
        with pytest.raises(InvalidQuery, match="would be parked again"):
            await letters.retry(await letters.find("admission", 1))
        await letters.discard(await letters.find("admission", 1), reason="a stray", actor_id="ops")
        assert [one async for one in letters.kept()] == []
        discarded = await entry_at(rig, 3)
        assert discarded.entry.payload == {"projection": "admission", "seq": 1, "reason": "a stray"}


async def test_an_entry_without_id_and_time_keeps_those_it_got_when_it_was_first_published(
    broker: ManagedBroker,
) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.client.jetstream().publish("journal.acme._.scout.note", orjson.dumps({"summary": "bare"}))
        first = await entry_at(rig, 1)
        await letters.park("entries", 1, await raw(rig, 1), "why")
        again = await entry_at(rig, await letters.retry(await letters.find("entries", 1)))
        assert (again.entry.id, again.entry.ts) == (first.entry.id, first.entry.ts)


async def test_a_control_entry_is_retried_as_one(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        letters = DeadLetters(rig.writer, rig.journal, rig.ids)
        await rig.journal.append(ADMIN, note(priority="pin"))
        await letters.park("entries", 1, await raw(rig, 1), "why")
        again = await entry_at(rig, await letters.retry(await letters.find("entries", 1)))
        assert again.control
        assert again.entry.priority == "pin"


def test_only_subjects_of_our_families_name_a_workspace() -> None:
    assert workspace_of("journal.acme._._.note") == "acme"
    assert workspace_of("control._system.token.created") == "_system"
    assert workspace_of("other.acme.x") == workspace_of("journal") == workspace_of("") == "_system"


async def test_the_canary_tells_since_when_writes_fail_and_that_they_work_again(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        canary = Canary(rig.client, timeout_s=DEADLINE_S)
        assert canary.outcome.ok is None
        await canary.start()
        good = canary.outcome
        assert good.ok
        assert good.latency_ms is not None
        assert (await canary.probe()).since == good.since
        js = rig.client.jetstream()
        assert (await js.stream_info("CANARY")).state.messages == 1
        await js.delete_stream("CANARY")
        bad = await canary.probe()
        assert bad.ok is False
        assert bad.error
        assert (await canary.probe()).since == bad.since
        await js.add_stream(name="CANARY", subjects=["canary.write"])
        assert (await canary.probe()).ok
        await broker.stop()
        await eventually(lambda: not rig.client.is_connected, "the loss of the connection")
        assert (await canary.probe()).ok is False
