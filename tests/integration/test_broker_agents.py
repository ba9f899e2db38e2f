"""What an agent's NATS credentials can and cannot do, tried against a real nats-server."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from support.ingest import OTHER, OTHER_PASSWORD, PASSWORD, SCOUT, AgentClient, agent_client, service_of
from support.journal import DEADLINE_S, OWNER, Rig, note
from support.nats import connected, running_broker

from crew_journal.schemas.core.errors import BrokerError
from crew_journal.services.journal.broker.broker import ManagedBroker

API = [
    f"$JS.API.{call}"
    for call in (
        "INFO",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.INFO.JOURNAL",
        "STREAM.CREATE.MINE",
        "STREAM.UPDATE.JOURNAL",
        "STREAM.DELETE.JOURNAL",
        "STREAM.PURGE.JOURNAL",
        "STREAM.MSG.GET.JOURNAL",
        "STREAM.MSG.DELETE.JOURNAL",
        "STREAM.SNAPSHOT.JOURNAL",
        "STREAM.RESTORE.JOURNAL",
        "STREAM.LEADER.STEPDOWN.JOURNAL",
        "STREAM.PEER.REMOVE.JOURNAL",
        "STREAM.TEMPLATE.NAMES",
        "DIRECT.GET.JOURNAL",
        "DIRECT.GET.JOURNAL.control.w1.x",
        "CONSUMER.CREATE.JOURNAL",
        "CONSUMER.CREATE.JOURNAL.mine",
        "CONSUMER.CREATE.JOURNAL.mine.control.>",
        "CONSUMER.DURABLE.CREATE.JOURNAL.mine",
        "CONSUMER.NAMES.JOURNAL",
        "CONSUMER.LIST.JOURNAL",
        "CONSUMER.INFO.JOURNAL.views",
        "CONSUMER.DELETE.JOURNAL.views",
        "CONSUMER.PAUSE.JOURNAL.views",
        "CONSUMER.UNPIN.JOURNAL.views",
        "CONSUMER.RESET.JOURNAL.views",
        "CONSUMER.MSG.NEXT.JOURNAL.views",
        "CONSUMER.LEADER.STEPDOWN.JOURNAL.views",
        "META.LEADER.STEPDOWN",
        "SERVER.REMOVE",
        "ACCOUNT.PURGE.JOURNAL",
        "ACCOUNT.STREAM.MOVE.JOURNAL.JOURNAL",
    )
]
ELSEWHERE = [
    *API,
    "$JS.ACK.JOURNAL.views.1.1.1.1.1",
    "$JS.FC.JOURNAL.views.1",
    "$JS.SNAPSHOT.ACK.JOURNAL.1",
    "$JSC.R.1",
    "$KV.bucket.key",
    "$O.bucket.C.x",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.ACCOUNT.JOURNAL.CONNZ",
    "$SRV.PING",
    "$MQTT.sess.x",
    "journal.w1.red.scout.note",
    "journal.w2._.spy.note",
    "control.w1.priority.set",
    "derived.w1.vector",
    "document.w1.scout.core.persona",
    "deadletter.decode.w1",
    "canary.write",
    "ingest.w2._.spy",
    "ingest.w1.blue.scout",
    "ingest.w1.red.other",
    "ingest.w1.red.scout.more",
    "ingest.w1.red",
    "ingest.*.*.*",
    "ingest.>",
    ">",
    "_INBOX.other.1",
    "_R_.other.1",
]
"""Every subject of JetStream's API, those beside it, the streams' subjects, other agents' and wildcards."""
HEADERS = {
    "Nats-Msg-Id": "w2/precious",
    "Nats-Expected-Stream": "OTHER",
    "Nats-Expected-Last-Sequence": "99",
    "Nats-Expected-Last-Msg-Id": "nothing",
    "Nats-Expected-Last-Subject-Sequence": "99",
    "Nats-Expected-Last-Subject-Sequence-Subject": "control.w1.x",
    "Nats-Batch-Id": "b1",
    "Nats-Batch-Sequence": "1",
    "Nats-Batch-Commit": "1",
    "Nats-Required-Api-Level": "99",
    "Nats-Rollup": "all",
    "Nats-TTL": "1s",
    "Nats-Marker-Reason": "Purge",
    "Nats-Incr": "7",
    "Nats-Counter-Sources": "{}",
    "Nats-Schedule": "@every 1s",
    "Nats-Schedule-Target": "control.w1.x",
    "Nats-Schedule-TTL": "1s",
    "Nats-Schedule-Source": "control.w1.x",
    "Nats-Schedule-Next": "purge",
    "Nats-Scheduler": "control.w1.x",
    "Nats-Stream-Source": "JOURNAL 1 > > x",
    "Nats-Trace-Only": "false",
    "Nats-Trace-Hop": "1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "Nats-Subject": "control.w1.x",
    "Nats-Sequence": "1",
    "Nats-Stream": "JOURNAL",
    "Nats-Request-Info": "{}",
    "Nats-Response-Type": "direct",
    "Status": "404",
    "Description": "No Messages",
}
"""Those that a server of 2.15 looks at in a message, and some that clients do."""


def scout_of(broker: ManagedBroker) -> AbstractAsyncContextManager[AgentClient]:
    return agent_client(broker.url, SCOUT.name, PASSWORD)


async def state(rig: Rig) -> tuple[int, int, int]:
    info = await rig.client.jetstream().stream_info("JOURNAL")
    return info.state.first_seq, info.state.last_seq, info.state.messages


async def test_an_agent_publishes_nowhere_but_on_its_request_subject_and_learns_nothing(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with service_of(broker) as (rig, ingest), scout_of(broker) as scout:
        await rig.client.jetstream().publish("control.w1.x", b"precious", headers={"Nats-Msg-Id": "w2/precious"})
        heard = await scout.subscribe("_INBOX.>")
        for subject in ELSEWHERE:
            await scout.publish(subject, b"{}", reply="_INBOX.mine.r")
            await scout.publish(subject, b"{}", reply="_INBOX.mine.r", headers=HEADERS)
            await scout.refused(subject)
        await scout.flush()
        assert heard.pending_msgs == 0
        assert ingest.figures().requests == 0
        assert await state(rig) == (1, 1, 1)
        infos = await rig.client.jetstream().streams_info()
        assert sorted(info.config.name for info in infos) == ["CANARY", "DEADLETTER", "JOURNAL"]  # type: ignore[type-var]  # every stream has a name
        assert [info.state.messages for info in infos if info.config.name != "JOURNAL"] == [0, 0]


async def test_no_header_of_a_request_does_anything(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, _), scout_of(broker) as scout:
        js = rig.client.jetstream()
        await js.publish("journal.w2._.spy.note", b"{}", headers={"Nats-Msg-Id": "w2/taken"})
        for n, (name, value) in enumerate(HEADERS.items(), 2):
            receipt = await scout.ask(SCOUT.subject, note(id=f"e{n}"), headers={name: value})
            assert receipt == {"entries": [{"id": f"e{n}", "seq": n}]}, name
            stored = await js.get_msg("JOURNAL", n)
            assert stored.headers is not None
            assert stored.headers["Nats-Msg-Id"] == f"w1/e{n}"
            assert name in ("Nats-Msg-Id",) or name not in stored.headers
        assert await scout.ask(SCOUT.subject, note(id="all"), headers=HEADERS) == {
            "entries": [{"id": "all", "seq": n + 1}]
        }
        precious = await rig.journal.append_batch(
            OWNER, [note("theirs", id="precious", workspace_id="w2"), note("more", workspace_id="w2")]
        )
        assert [one.duplicate for one in precious] == [False, False]
        assert await state(rig) == (1, n + 3, n + 3)


@pytest.mark.parametrize("destination", ["_INBOX.trace", SCOUT.subject, "control.w1.x"])
async def test_a_traced_request_answers_the_agent_without_the_trace(broker: ManagedBroker, destination: str) -> None:
    """The server sends trace events where the sender may publish: a request's way through the service's account."""
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, _), scout_of(broker) as scout:
        heard = await scout.subscribe("_INBOX.>")
        headers = {"Nats-Trace-Dest": destination}
        await scout.publish(SCOUT.subject, json.dumps(note(id="traced")).encode(), reply="_INBOX.mine", headers=headers)
        receipt = await scout.ask(SCOUT.subject, note(id="asked"))
        messages = [await heard.next_msg(timeout=DEADLINE_S) for _ in range(heard.pending_msgs)]
        answers = [json.loads(message.data) for message in messages]
        assert all(answer.keys() == {"entries"} for answer in answers), answers
        assert receipt in answers
        assert [message.subject for message in await rig.stored()] == ["journal.w1.red.scout.run.completed"] * len(
            answers
        )


@pytest.mark.parametrize(
    "subject", [">", "journal.>", SCOUT.subject, "ingest.>", "*.>", "$JS.>", "$SYS.>", "_R_.>", "_INBOX"]
)
@pytest.mark.parametrize("queue", ["", "crew-journal"])
async def test_an_agent_listens_to_nothing_but_its_inbox(broker: ManagedBroker, subject: str, queue: str) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with scout_of(broker) as scout:
        await scout.subscribe(subject, queue)
        await scout.refused(subject)


async def test_an_agent_that_listens_to_every_inbox_hears_its_own_alone(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with (
        service_of(broker) as (rig, _),
        scout_of(broker) as eavesdropper,
        agent_client(broker.url, OTHER.name, OTHER_PASSWORD) as agent,
    ):
        everything = await eavesdropper.subscribe("_INBOX.>")
        await eavesdropper.flush()
        await agent.ask(OTHER.subject, note())
        await rig.client.jetstream().publish("control.w1.x", b"{}")
        await eavesdropper.publish(SCOUT.subject, json.dumps(note()).encode(), reply="_INBOX.mine")
        heard = await everything.next_msg(timeout=DEADLINE_S)
        assert heard.subject == "_INBOX.mine"  # the first it hears, after the answers of the others
        assert everything.pending_msgs == 0


@pytest.mark.parametrize(
    "target",
    [
        "control.w1.forged",
        "derived.w1.forged",
        "journal.w2._.spy.forged",
        "ingest.w2._.spy",
        SCOUT.subject,
        "$JS.API.STREAM.PURGE.JOURNAL",
        "$JS.API.STREAM.MSG.DELETE.JOURNAL",
        "$SYS.REQ.SERVER.PING",
    ],
)
async def test_the_answer_to_an_agent_goes_nowhere_else_whatever_reply_it_names(
    broker: ManagedBroker, target: str
) -> None:
    """Acks of JetStream went to whatever reply the client named, with the server's rights (ADR 7)."""
    await broker.set_agent_users([SCOUT, OTHER])
    async with service_of(broker) as (rig, _), scout_of(broker) as scout:
        for _ in range(3):
            await rig.client.jetstream().publish("control.w1.x", b"precious")
        await scout.publish(SCOUT.subject, json.dumps(note(id="named")).encode(), reply=target)
        receipt = await scout.ask(SCOUT.subject, note(id="asked"))
        assert receipt == {"entries": [{"id": "asked", "seq": 5}]}
        await rig.client.jetstream().publish("control.w1.x", b"last")
        assert await state(rig) == (1, 6, 6)
        subjects = [message.subject for message in await rig.stored()]
        own = "journal.w1.red.scout.run.completed"
        assert subjects == ["control.w1.x"] * 3 + [own] * 2 + ["control.w1.x"]


async def test_the_services_connection_survives_a_change_of_agents(broker: ManagedBroker) -> None:
    async with service_of(broker) as (rig, _), connected(broker) as service:
        number = service.client_id
        subscription = await service.subscribe("journal.>")
        await service.flush()
        for agents in ([SCOUT], [SCOUT, OTHER], [OTHER], []):
            await broker.set_agent_users(agents)
        await broker.set_agent_users([SCOUT])
        async with scout_of(broker) as scout:
            await scout.ask(SCOUT.subject, note("heard"))
        heard = await subscription.next_msg(timeout=DEADLINE_S)
        assert json.loads(heard.data)["summary"] == "heard"
        assert await state(rig) == (1, 1, 1)
        assert service.client_id == number
        assert service.stats["reconnects"] == 0
        assert broker.status().restarts == 0


async def test_a_revoked_agent_is_disconnected_and_cannot_come_back(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with (
        service_of(broker),
        scout_of(broker) as revoked,
        agent_client(broker.url, OTHER.name, OTHER_PASSWORD) as kept,
    ):
        await broker.set_agent_users([OTHER])
        deadline = time.monotonic() + DEADLINE_S
        while revoked.is_connected:
            assert time.monotonic() < deadline, "still connected"
            await asyncio.sleep(0.01)
        assert kept.is_connected
        assert "entries" in await kept.ask(OTHER.subject, note())
    with pytest.raises(NatsError, match=r"(?i)authorization"):
        async with scout_of(broker):
            pass


async def test_changed_rights_hold_for_connections_that_were_open(broker: ManagedBroker) -> None:
    moved = SCOUT.model_copy(update={"crew_id": "blue"})
    await broker.set_agent_users([SCOUT])
    async with service_of(broker) as (rig, _), scout_of(broker) as scout:
        await broker.set_agent_users([moved])
        with pytest.raises((NatsError, asyncio.TimeoutError)):
            await scout.request(SCOUT.subject, json.dumps(note()).encode(), timeout=1)
        assert await state(rig) == (0, 0, 0)
        async with scout_of(broker) as again:
            await again.ask(moved.subject, note())
            assert [message.subject for message in await rig.stored()] == ["journal.w1.blue.scout.run.completed"]


async def test_credentials_are_kept_across_a_restart_and_those_of_an_older_version_send_requests(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as first:
        await first.set_agent_users([SCOUT])
    before = {"name": SCOUT.name, "bcrypt": SCOUT.bcrypt, "workspace_id": "w1", "agent_id": "scout", "crew_id": "red"}
    assert json.loads((tmp_path / "nats" / "agents.json").read_text()) == [
        before
    ]  # as it was before agents sent requests
    conf = tmp_path / "nats" / "nats.conf"
    conf.write_text(conf.read_text().replace("ingest.w1.red.scout", "journal.w1.red.scout.>"))
    async with running_broker(tmp_path) as second:
        assert second.agent_users == (SCOUT,)
        async with service_of(second) as (rig, _), scout_of(second) as scout:
            await scout.publish("journal.w1.red.scout.note", b"{}")
            await scout.refused("journal.w1.red.scout.note")
            assert "entries" in await scout.ask(SCOUT.subject, note())
            assert await state(rig) == (1, 1, 1)


async def test_without_a_service_a_request_fails_at_once(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with scout_of(broker) as scout:
        with pytest.raises(NoRespondersError):
            await scout.ask(SCOUT.subject, note())


async def test_a_list_that_is_refused_changes_nothing(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    with pytest.raises(BrokerError, match="share a name"):
        await broker.set_agent_users([SCOUT, SCOUT])
    assert broker.agent_users == (SCOUT,)
    async with scout_of(broker) as scout:
        assert scout.is_connected
