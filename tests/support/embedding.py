"""A journal on a real broker, with reactors that embed it, for tests of the embed reactor."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from nats.js import JetStreamContext

from crew_journal.consumers.models.embed_reactor import EmbedLimits, EmbedReactor
from crew_journal.consumers.reactor import ReactorStatus
from crew_journal.schemas.core.envelope import VectorDerived
from crew_journal.schemas.core.ports import Embedder
from crew_journal.schemas.core.subjects import JOURNAL_STREAM, control_subject, journal_subject
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import BrokerConnection, connect
from crew_journal.services.journal.broker.streams import declare_streams
from crew_journal.services.journal.publishing import Writer

DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
POLL_S = 0.02
QUICK_TIMES: dict[str, Any] = {
    "wait_s": 0.3,
    "window_s": 0.02,
    "ack_wait_s": 60.0,
    "backoff_first_s": 0.02,
    "backoff_last_s": 0.1,
    "retry_first_s": 0.05,
    "retry_last_s": 0.1,
}
"""Limits of any reactor that pulls, quick enough for tests."""
QUICK = EmbedLimits(**QUICK_TIMES, stop_s=3.0)
"""The embed reactor's. Nothing comes again by the ack wait alone: see ``COMES_AGAIN``."""
COMES_AGAIN = replace(QUICK, ack_wait_s=3.0)
"""For tests in which something that was in hand is lost and comes again by the ack wait."""


async def until(condition: Callable[[], Awaitable[object]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until ``condition`` answers with something true."""
    end = time.monotonic() + deadline_s
    seen: object = None
    while time.monotonic() < end:
        seen = await condition()
        if seen:
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"waited {deadline_s:g} s in vain for {what}; last seen: {seen!r}")


@dataclass
class Bench:
    """A declared journal and what tests do with it."""

    broker: ManagedBroker
    client: BrokerConnection
    js: JetStreamContext
    writer: Writer
    reactors: list[EmbedReactor] = field(default_factory=list)
    clients: list[tuple[BrokerConnection, Writer]] = field(default_factory=list)

    async def escalate(self, entry_id: str, summary: str | None = None, workspace: str = "default") -> int:
        """Publish an entry that is always embedded; its sequence."""
        return await self.publish(entry_id, "peer.escalation", summary or f"trouble number {entry_id}", workspace)

    async def publish(
        self, entry_id: str, entry_type: str, summary: str, workspace: str = "default", **fields: object
    ) -> int:
        """Publish any entry as an agent; its sequence. No message id: repeats are stored."""
        body = {"id": entry_id, "ts": "2026-11-21T09:30:00.000Z", "summary": summary, **fields}
        subject = journal_subject(workspace, "red", "ada", entry_type)
        return (await self.js.publish(subject, orjson.dumps(body))).seq

    async def publish_control(self, entry_id: str, entry_type: str, summary: str, priority: str) -> int:
        """Publish an entry with the service's authority."""
        body = {"id": entry_id, "ts": "2026-11-21T09:30:00.000Z", "summary": summary, "priority": priority}
        return (await self.js.publish(control_subject("default", entry_type), orjson.dumps(body))).seq

    async def facts(self) -> list[VectorDerived]:
        """Every vector fact in the journal, in order."""
        facts = []
        info = await self.js.stream_info(JOURNAL_STREAM)
        for seq in range(1, info.state.last_seq + 1):
            message = await self.js.get_msg(JOURNAL_STREAM, seq)
            assert message.subject is not None
            if message.subject.startswith("derived."):
                event = decode(seq, message.subject, message.headers, message.data or b"", 0)
                assert isinstance(event, VectorDerived)
                facts.append(event)
        return facts

    async def embedded(self) -> Counter[str]:
        """How many facts each entry has."""
        return Counter(fact.entry_id for fact in await self.facts())

    async def fact_count(self) -> int:
        """How many vector facts there are."""
        info = await self.js.stream_info(JOURNAL_STREAM, subjects_filter="derived.>")
        return sum((info.state.subjects or {}).values())

    async def until_facts(self, count: int) -> None:
        """Wait until there are so many facts."""

        async def enough() -> bool:
            return await self.fact_count() >= count

        await until(enough, f"{count} vector facts")

    async def reactor(
        self,
        embedder: Embedder,
        limits: EmbedLimits = QUICK,
        *,
        own_connection: bool = False,
        dim: int | None = None,
    ) -> EmbedReactor:
        """A started reactor."""
        client, writer = self.client, self.writer
        if own_connection:
            client, writer = await _connect(self.broker)
            self.clients.append((client, writer))
        reactor = EmbedReactor(
            client, writer, embedder, clock=lambda: datetime.now(UTC), dim=dim, limits=limits, draw=lambda: 0.5
        )
        self.reactors.append(reactor)
        await reactor.start()
        return reactor

    async def until_status(
        self, reactor: EmbedReactor, holds: Callable[[ReactorStatus], bool], what: str
    ) -> ReactorStatus:
        """Wait until the status is as wanted."""
        last: list[ReactorStatus] = []

        async def check() -> object:
            last.append(await reactor.status())
            return last[-1] if holds(last[-1]) else False

        try:
            await until(check, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {last[-1]}") from None
        return last[-1]

    async def until_idle(self, reactor: EmbedReactor) -> ReactorStatus:
        """Wait until nothing is pending."""
        return await self.until_status(reactor, lambda s: s.pending == 0 and s.state == "running", "an idle reactor")


async def _connect(broker: ManagedBroker) -> tuple[BrokerConnection, Writer]:
    client = await connect(broker.url, broker.user, broker.password, "test")
    writer = Writer(client, ack_timeout_s=2.0, deadline_s=10.0)
    await writer.open()
    return client, writer


@asynccontextmanager
async def embedding_bench(broker: ManagedBroker) -> AsyncIterator[Bench]:
    """A bench on a started broker; its reactors are stopped at the end."""
    client, writer = await _connect(broker)
    await declare_streams(client)
    bench = Bench(broker, client, client.jetstream(), writer)
    try:
        yield bench
    finally:
        for reactor in bench.reactors:
            await reactor.stop()
        for own_client, own_writer in [*bench.clients, (client, writer)]:
            await own_writer.close()
            await own_client.close()
