"""Requests to append over NATS: the same receipts and refusals as over HTTP, bounded, and answered to their sender alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest
from nats.errors import NoRespondersError
from support.ingest import OTHER, OTHER_PASSWORD, PASSWORD, SCOUT, agent_client, service_of
from support.journal import DEADLINE_S, eventually, note
from support.nats import connected

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.intake import ingest as ingest_module


async def test_an_entry_and_a_list_are_stored_as_the_subject_s_agent_and_answered_with_their_sequences(
    broker: ManagedBroker,
) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, ingest), agent_client(broker.url, SCOUT.name, PASSWORD) as scout:
        assert await scout.ask(SCOUT.subject, note("one", id="a")) == {"entries": [{"id": "a", "seq": 1}]}
        listed = await scout.ask(SCOUT.subject, [note("two", id="b"), note("three")])
        assert [entry["seq"] for entry in listed["entries"]] == [2, 3]
        again = await scout.ask(SCOUT.subject, note("one", id="a"))
        assert again == {"entries": [{"id": "a", "seq": 1, "duplicate": True}]}
        for seq, message in enumerate(await rig.stored(), 1):
            event = decode(seq, message.subject, message.headers, message.data, 0)
            assert isinstance(event, EntryRecorded)
            entry = event.entry
            assert (entry.workspace_id, entry.crew_id, entry.agent_id) == ("w1", "red", "scout")
        assert (ingest.figures().requests, ingest.figures().entries, ingest.figures().refused) == (3, 4, 0)


@pytest.mark.parametrize(
    ("submitted", "status", "says"),
    [
        ({"summary": "no type"}, 422, "entry_type"),
        (note(workspace_id="w2"), 403, "workspace"),
        (note(agent_id="spy"), 403, "agent"),
        (note(crew_id="blue"), 403, "crew"),
        (note(priority="pin"), 403, "priority"),
        ({"entry_type": "token.created", "summary": "x"}, 403, "service only"),
        ([note(), note(severity="loud")], 422, "entries[1].severity"),
        ([], 400, "empty"),
        ([note()] * 1_001, 413, "1001"),
        (note(payload={"x": "y" * 300_000}), 413, "bytes"),
        (b"{", 400, "not valid JSON"),
        (b"", 400, "not valid JSON"),
        (b'{"entry_type":"a.b","summary":"x","payload":{"n":18446744073709551616}}', 422, "64 bits"),
        (7, 422, "object"),
    ],
)
async def test_what_http_refuses_is_refused_with_the_same_problem(
    broker: ManagedBroker, submitted: Any, status: int, says: str
) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, ingest), agent_client(broker.url, SCOUT.name, PASSWORD) as scout:
        body = submitted if isinstance(submitted, bytes) else json.dumps(submitted).encode()
        answer = await scout.request(SCOUT.subject, body, timeout=DEADLINE_S)
        problem = json.loads(answer.data)
        assert (problem["status"], says in str(problem)) == (status, True), problem
        assert {"title", "detail", "hint", "trace_id"} <= problem.keys()
        assert answer.headers == {"Nats-Service-Error": problem["title"], "Nats-Service-Error-Code": str(status)}
        assert await rig.count() == 0
        assert ingest.figures().refused == 1


async def test_a_fault_with_a_description_larger_than_a_message_is_reported_without_it(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (_, ingest), agent_client(broker.url, SCOUT.name, PASSWORD) as scout:
        problem = await scout.ask(SCOUT.subject, {**note(), "x" * 600_000: 1})
        assert problem["status"] == 422
        assert await scout.ask(SCOUT.subject, note(id="after")) == {"entries": [{"id": "after", "seq": 1}]}
        assert ingest.figures().error is None


HOSTILE = [
    "",
    "journal.w1.red.scout.note",
    "journal.w9._._.note",
    "control.w1.priority.set",
    "document.w1.a.b.c",
    "derived.w1.vector",
    "deadletter.decode.w1",
    "canary.write",
    "ingest.w1.red.scout",
    "ingest.w2._.spy",
    "$JS.API.STREAM.PURGE.JOURNAL",
    "$JS.API.STREAM.DELETE.JOURNAL",
    "$JS.API.STREAM.MSG.DELETE.JOURNAL",
    "$JS.API.CONSUMER.CREATE.JOURNAL",
    "$JS.FC.JOURNAL.x",
    "$SYS.REQ.SERVER.PING",
    "$KV.x.y",
    "$O.x",
    "_INBOX",
    "_INBOX.",
    "_INBOX.>",
    "_INBOX.*.a",
    "_INBOXES.a",
    "_R_",
    "x._INBOX.a",
    "_inbox.a",
]
REFUSED_BY_THE_SERVER = ["$JS.ACK.JOURNAL.c.1.1.1.1.1", "_GR_.x.y.journal.w1.red.scout.note"]


async def test_in_a_shared_account_no_reply_subject_makes_the_service_publish_but_to_an_inbox(
    broker: ManagedBroker,
) -> None:
    """On a broker of one's own the operator may have put callers into the service's account: replies come as named."""
    async with service_of(broker) as (rig, ingest), connected(broker) as caller:
        everything = await caller.subscribe(">")
        entry = json.dumps(note(id="e")).encode()
        for reply in HOSTILE:
            await caller.publish("ingest.w1.red.scout", entry, reply=reply)
        await eventually(lambda: ingest.figures().unanswerable == len(HOSTILE), "each arrived")
        assert await rig.count() == 0
        receipt = await caller.request("ingest.w1.red.scout", entry, timeout=DEADLINE_S)
        assert json.loads(receipt.data) == {"entries": [{"id": "e", "seq": 1}]}
        heard = [await everything.next_msg(timeout=DEADLINE_S) for _ in range(everything.pending_msgs)]
        assert [m.subject for m in heard if m.data == receipt.data] == [receipt.subject]
        assert not [m.subject for m in heard if m.subject in HOSTILE and m.data != entry]
        for reply in REFUSED_BY_THE_SERVER:
            ingest._on_request(b"ingest.w1.red.scout", reply.encode(), entry, None)
        assert ingest.figures().unanswerable == len(HOSTILE) + len(REFUSED_BY_THE_SERVER)
        assert ingest.figures().in_hand == 0


@pytest.mark.parametrize(
    "subject", ["ingest.w1.red._", "ingest._system.red.scout", "ingest.w1.red.a%b", "ingest.*.red.scout"]
)
async def test_a_subject_that_names_no_agent_is_refused(broker: ManagedBroker, subject: str) -> None:
    async with service_of(broker) as (rig, _), connected(broker) as caller:
        answer = await caller.request(subject, json.dumps(note()).encode(), timeout=DEADLINE_S)
        assert json.loads(answer.data)["status"] == 400
        assert await rig.count() == 0


async def test_what_is_beyond_the_bounds_is_refused_at_once_and_others_keep_their_share(
    broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "MAX_REQUESTS_OF_AGENT", 3)
    monkeypatch.setattr(ingest_module, "MAX_BYTES_OF_AGENT", 10_000)
    monkeypatch.setattr(ingest_module, "MAX_REQUESTS", 5)
    monkeypatch.setattr(ingest_module, "MAX_BYTES", 12_000)
    await broker.set_agent_users([SCOUT, OTHER])
    async with (
        service_of(broker) as (rig, ingest),
        agent_client(broker.url, SCOUT.name, PASSWORD) as scout,
        agent_client(broker.url, OTHER.name, OTHER_PASSWORD) as spy,
    ):
        go = asyncio.Event()
        append = rig.journal.append

        async def wait(*given: Any) -> Any:
            await go.wait()
            return await append(*given)

        monkeypatch.setattr(rig.journal, "append", wait)
        held = [asyncio.create_task(scout.ask(SCOUT.subject, note(f"n {n}"))) for n in range(3)]
        await eventually(lambda: ingest.figures().in_hand == 3, "three are in hand")
        problem = await scout.ask(SCOUT.subject, note("the fourth"))
        assert (problem["status"], "try again" in problem["hint"]) == (503, True)
        theirs = [asyncio.create_task(spy.ask(OTHER.subject, note(f"s {n}"))) for n in range(2)]
        await eventually(lambda: ingest.figures().in_hand == 5, "the other has its share")
        assert (await spy.ask(OTHER.subject, note("the sixth of all")))["status"] == 503
        go.set()
        receipts = await asyncio.gather(*held, *theirs)
        assert sorted(receipt["entries"][0]["seq"] for receipt in receipts) == [1, 2, 3, 4, 5]
        assert (await scout.ask(SCOUT.subject, note(payload={"x": "y" * 10_000})))["status"] == 503
        assert "entries" in await scout.ask(SCOUT.subject, note("after"))
        figures = ingest.figures()
        assert (figures.overloaded, figures.in_hand, figures.bytes_in_hand) == (3, 0, 0)
        assert figures.overloaded_at is not None


async def test_a_stop_answers_what_has_arrived_and_takes_nothing_more(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, ingest), agent_client(broker.url, SCOUT.name, PASSWORD) as scout:
        asked = [asyncio.create_task(scout.ask(SCOUT.subject, note(f"n {n}"))) for n in range(200)]
        await eventually(lambda: ingest.figures().requests > 0, "the first arrived")
        await ingest.stop()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        receipts = [answer for answer in answers if isinstance(answer, dict)]
        assert len(receipts) == await rig.count() > 0
        assert all(isinstance(answer, NoRespondersError) for answer in answers if not isinstance(answer, dict))
        with pytest.raises(NoRespondersError):
            await scout.ask(SCOUT.subject, note("late"))


async def test_two_nodes_share_the_requests_and_store_each_once(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with (
        service_of(broker) as (rig, one),
        service_of(broker) as (_, other),
        agent_client(broker.url, SCOUT.name, PASSWORD) as scout,
    ):
        receipts = await asyncio.gather(*(scout.ask(SCOUT.subject, note(f"n {n}")) for n in range(200)))
        assert sorted(receipt["entries"][0]["seq"] for receipt in receipts) == list(range(1, 201))
        assert await rig.count() == 200
        shares = one.figures().requests, other.figures().requests
        assert sum(shares) == 200
        assert min(shares) > 20


async def test_requests_are_taken_again_after_the_broker_was_killed(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (_, ingest):
        before = broker.status().restarts
        pid = broker.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: broker.status().restarts > before, "the broker is back")
        await eventually(lambda: ingest.figures().error is None, "the service is connected")
        async with agent_client(broker.url, SCOUT.name, PASSWORD) as scout:
            deadline = asyncio.get_running_loop().time() + DEADLINE_S
            while True:
                try:
                    assert "entries" in await scout.ask(SCOUT.subject, note("after"))
                    break
                except NoRespondersError:
                    assert asyncio.get_running_loop().time() < deadline
