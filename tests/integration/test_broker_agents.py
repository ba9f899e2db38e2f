"""What an agent's NATS credentials can and cannot do, tried against a real nats-server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from support.nats import connected, nats_agent, running_broker

from crew_journal.schemas.errors import BrokerError
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.config import AgentUser

DEADLINE_S = 120.0
SUBJECTS = ["journal.>", "control.>", "derived.>", "document.>"]
SCOUT, PASSWORD = nats_agent("scout-nats", workspace_id="w1", agent_id="scout", crew_id="red")
OTHER, OTHER_PASSWORD = nats_agent("other-nats", workspace_id="w2", agent_id="spy")
OWN = "journal.w1.red.scout.note"


class AgentConnection:
    """A client with an agent's credentials that remembers what the server complained of."""

    def __init__(self) -> None:
        self.client = Client()
        self.errors: list[str] = []

    async def _remember(self, error: Exception) -> None:
        self.errors.append(str(error).lower())

    async def open(self, broker: ManagedBroker, agent: AgentUser) -> None:
        await self.client.connect(
            broker.url,
            user=agent.name,
            password=PASSWORD if agent.name == SCOUT.name else OTHER_PASSWORD,
            error_cb=self._remember,
            allow_reconnect=False,
            connect_timeout=DEADLINE_S,
        )

    async def refused(self, subject: str) -> None:
        """Wait until the server has complained about ``subject``."""
        deadline = time.monotonic() + DEADLINE_S
        while not any("permissions violation" in e and subject.lower() in e for e in self.errors):
            assert time.monotonic() < deadline, f"{subject} was not refused: {self.errors}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def agent_connection(broker: ManagedBroker, agent: AgentUser) -> AsyncIterator[AgentConnection]:
    connection = AgentConnection()
    await connection.open(broker, agent)
    try:
        yield connection
    finally:
        await connection.client.close()


@asynccontextmanager
async def journal_of(broker: ManagedBroker) -> AsyncIterator[JetStreamContext]:
    async with connected(broker) as service:
        js = service.jetstream()
        await js.add_stream(name="JOURNAL", subjects=SUBJECTS)
        yield js


async def state(js: JetStreamContext) -> tuple[int, int, int]:
    info: StreamInfo = await js.stream_info("JOURNAL")
    return info.state.first_seq, info.state.last_seq, info.state.messages


async def test_an_agent_publishes_on_its_own_subject_and_gets_the_ack(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    async with journal_of(broker) as js, agent_connection(broker, SCOUT) as agent:
        headers = {"Nats-Msg-Id": "w1/first"}
        ack = await agent.client.jetstream().publish(OWN, b"{}", headers=headers)
        again = await agent.client.jetstream().publish(OWN, b"{}", headers=headers)
        assert (ack.stream, ack.seq, again.seq, again.duplicate) == ("JOURNAL", 1, 1, True)
        stored = await js.get_msg("JOURNAL", 1)
        assert (stored.subject, stored.headers) == (OWN, headers)
        assert agent.errors == []


@pytest.mark.parametrize(
    "subject",
    [
        "control.w1.priority.set",
        "derived.w1.vector",
        "document.w1.scout.core.persona",
        "journal.w2.red.scout.note",
        "journal.w1.blue.scout.note",
        "journal.w1.red.other.note",
        "$JS.API.STREAM.INFO.JOURNAL",
        "$JS.API.STREAM.MSG.GET.JOURNAL",
        "$JS.API.DIRECT.GET.JOURNAL",
        "$JS.API.STREAM.PURGE.JOURNAL",
        "$JS.API.CONSUMER.CREATE.JOURNAL",
        "$JS.API.CONSUMER.CREATE.JOURNAL.mine",
        "$JS.API.CONSUMER.DURABLE.CREATE.JOURNAL.mine",
        "_INBOX.other.1",
    ],
)
async def test_an_agent_publishes_nowhere_else(broker: ManagedBroker, subject: str) -> None:
    await broker.set_agent_users([SCOUT])
    async with journal_of(broker) as js, agent_connection(broker, SCOUT) as agent:
        await js.publish("control.w1.x", b"precious")
        await agent.client.publish(subject, b"{}", reply="_INBOX.mine.r")
        await agent.refused(subject)
        assert await state(js) == (1, 1, 1)


@pytest.mark.parametrize("subject", [">", "journal.>", OWN, "*.>", "$JS.>", "_R_.>"])
async def test_an_agent_listens_to_nothing_but_its_inbox(broker: ManagedBroker, subject: str) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with agent_connection(broker, SCOUT) as agent:
        await agent.client.subscribe(subject)
        await agent.refused(subject)


async def test_an_agent_that_listens_to_every_inbox_hears_its_own_alone(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with (
        journal_of(broker) as js,
        agent_connection(broker, SCOUT) as eavesdropper,
        agent_connection(broker, OTHER) as agent,
    ):
        everything = await eavesdropper.client.subscribe("_INBOX.>")
        await eavesdropper.client.flush()
        await agent.client.jetstream().publish("journal.w2._.spy.note", b"{}")
        await js.publish("control.w1.x", b"{}")
        await state(js)
        await eavesdropper.client.publish(OWN, b"{}", reply="_INBOX.mine")
        heard = await everything.next_msg(timeout=DEADLINE_S)
        assert heard.subject == "_INBOX.mine"  # the first it hears, after the acks of the others
        assert everything.pending_msgs == 0


@pytest.mark.parametrize(
    "target",
    [
        "control.w1.forged",
        "derived.w1.forged",
        "journal.w2._.spy.forged",
        "$JS.API.STREAM.PURGE.JOURNAL",
        "$JS.API.STREAM.MSG.DELETE.JOURNAL",
    ],
)
async def test_the_ack_of_an_agent_cannot_be_turned_into_a_weapon(broker: ManagedBroker, target: str) -> None:
    """The server sends acks with its own rights to whatever reply the client names.

    With a permission list in one shared account this emptied the stream on 2.10 and forged a control message
    on 2.15; see ``broker.config``.
    """
    await broker.set_agent_users([SCOUT, OTHER])
    async with journal_of(broker) as js, agent_connection(broker, SCOUT) as agent:
        for _ in range(3):
            await js.publish("control.w1.x", b"precious")
        await agent.client.publish(OWN, b"{}", reply=target)
        ack = await agent.client.jetstream().publish(OWN, b"{}")  # acks are in order: the first was sent
        assert ack.seq == 5
        await js.publish("control.w1.x", b"last")
        assert await state(js) == (1, 6, 6)
        subjects = [(await js.get_msg("JOURNAL", seq)).subject for seq in range(1, 7)]
        assert subjects == ["control.w1.x"] * 3 + [OWN] * 2 + ["control.w1.x"]


async def test_the_services_connection_survives_a_change_of_agents(broker: ManagedBroker) -> None:
    async with journal_of(broker) as js, connected(broker) as service:
        number = service.client_id
        subscription = await service.subscribe("journal.>")
        await service.flush()
        for agents in ([SCOUT], [SCOUT, OTHER], [OTHER], []):
            await broker.set_agent_users(agents)
        await broker.set_agent_users([SCOUT])
        async with agent_connection(broker, SCOUT) as agent:
            await agent.client.jetstream().publish(OWN, b"heard")
        heard = await subscription.next_msg(timeout=DEADLINE_S)
        assert heard.data == b"heard"
        assert await state(js) == (1, 1, 1)
        assert service.client_id == number
        assert service.stats["reconnects"] == 0
        assert broker.status().restarts == 0


async def test_a_revoked_agent_is_disconnected_and_cannot_come_back(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT, OTHER])
    async with (
        journal_of(broker),
        agent_connection(broker, SCOUT) as revoked,
        agent_connection(broker, OTHER) as kept,
    ):
        await broker.set_agent_users([OTHER])
        deadline = time.monotonic() + DEADLINE_S
        while revoked.client.is_connected:
            assert time.monotonic() < deadline, "still connected"
            await asyncio.sleep(0.01)
        assert kept.client.is_connected
        assert (await kept.client.jetstream().publish("journal.w2._.spy.note", b"{}")).seq == 1
    with pytest.raises(NatsError, match=r"(?i)authorization"):
        async with agent_connection(broker, SCOUT):
            pass


async def test_changed_rights_hold_for_connections_that_were_open(broker: ManagedBroker) -> None:
    moved = SCOUT.model_copy(update={"crew_id": "blue"})
    await broker.set_agent_users([SCOUT])
    async with journal_of(broker) as js, agent_connection(broker, SCOUT) as agent:
        await broker.set_agent_users([moved])
        with pytest.raises((NatsError, asyncio.TimeoutError)):
            await agent.client.jetstream().publish(OWN, b"{}", timeout=1)
        assert await state(js) == (0, 0, 0)
        async with agent_connection(broker, moved) as again:
            await again.client.jetstream().publish("journal.w1.blue.scout.note", b"{}")


async def test_credentials_are_kept_across_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        await first.set_agent_users([SCOUT])
    async with running_broker(tmp_path) as second:
        assert second.agent_users == (SCOUT,)
        async with journal_of(second), agent_connection(second, SCOUT) as agent:
            assert (await agent.client.jetstream().publish(OWN, b"{}")).seq == 1


async def test_a_list_that_is_refused_changes_nothing(broker: ManagedBroker) -> None:
    await broker.set_agent_users([SCOUT])
    with pytest.raises(BrokerError, match="share a name"):
        await broker.set_agent_users([SCOUT, SCOUT])
    assert broker.agent_users == (SCOUT,)
    async with agent_connection(broker, SCOUT) as agent:
        assert agent.client.is_connected
