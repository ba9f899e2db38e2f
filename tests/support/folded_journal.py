"""The lower half of a node: a connection, the journal's writer, and views fed from JOURNAL, over a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from support.views import MEMORY_MB, empty_views

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage, position_of
from crew_journal.consumers.host.bulk import ReplaySource
from crew_journal.consumers.host.folding import Parked
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.schemas.settings import BATCH_MESSAGES
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import BrokerConnection, connect
from crew_journal.services.journal.broker.streams import declare_streams
from crew_journal.services.journal.publishing import Writer
from crew_journal.services.parts import end_task
from crew_journal.services.runtime.views import replay_source

_log = structlog.get_logger(__name__)


def _as_received(messages: Sequence[RawMessage], received: Mapping[str, int]) -> list[RawMessage]:
    """The messages, some with another time of receipt."""
    return [
        replace(found, published_ms=received.get((found.headers or {}).get(h.ENTRY_ID, ""), found.published_ms))
        for found in messages
    ]


async def _feed(messages: JetStreamContext.PushSubscription, host: Host, received: Mapping[str, int]) -> None:
    """Fold every message of JOURNAL, in order, until cancelled; ``received`` has the times of some entries by id."""
    while True:
        fetched = [await messages.next_msg(timeout=None)]
        while messages.pending_msgs:
            fetched.append(await messages.next_msg())
        raw = [
            RawMessage(
                found.metadata.sequence.stream,
                found.subject,
                found.headers,
                found.data,
                position_of(found.reply).published_ms,
            )
            for found in fetched
        ]
        await host.fold(_as_received(raw, received))
        for found in fetched:
            await found.ack()


def _report(feed: asyncio.Task[None]) -> None:
    """Log why the feed ended early: a test would only see that its views stay behind."""
    if not feed.cancelled() and (error := feed.exception()) is not None:
        _log.error("test_feed.failed", exc_info=error)


@dataclass(frozen=True)
class FoldedJournal:
    """A connection, the journal's writer, views that follow the journal, and what reads the stream again."""

    client: BrokerConnection
    writer: Writer
    store: ViewStore
    host: Host
    source: ReplaySource


@asynccontextmanager
async def folded_journal(
    broker: ManagedBroker, folder: Path, name: str, *, received: Mapping[str, int] | None = None
) -> AsyncIterator[FoldedJournal]:
    """Streams, a writer, and views in ``folder`` that follow the journal until the block ends.

    Args:
        broker: The broker.
        folder: Where the views are.
        name: Of the connection.
        received: Entry id → when the broker is taken to have received it, ms since the epoch; looked up as it is folded.

    Raises:
        AssertionError: If a view cannot fold a message.
    """

    async def park(parked: Parked) -> None:
        raise AssertionError(f"{parked.projection} cannot fold {parked.message.seq}: {parked.reason}")

    async with contextlib.AsyncExitStack() as ends:
        client = await connect(broker.url, broker.user, broker.password, name)
        ends.push_async_callback(client.close)
        streams = await declare_streams(client)
        writer = Writer(client, atomic=streams.atomic)
        await writer.open()
        ends.push_async_callback(writer.close)
        views, projections = folder / "views.duckdb", discover_projections()
        ready = empty_views.begin(views, projections)
        store = ViewStore.open(views, memory_mb=MEMORY_MB)
        ends.callback(store.close)
        host = Host(store, projections, park=park, housekeeping=False)
        await host.open()
        if not ready:
            empty_views.keep(views, projections)
        ends.push_async_callback(host.close)
        # not in the task: a test that blocks the event loop for 5 s would let the request time out
        messages = await client.jetstream().subscribe(
            "", durable="test-stack", stream=JOURNAL_STREAM, manual_ack=True
        )  # pushed: a node at rest costs nothing
        times = {} if received is None else received
        stream = replay_source(client, BATCH_MESSAGES)

        async def source(first_seq: int, last_seq: int) -> AsyncIterator[list[RawMessage]]:
            async for batch in stream(first_seq, last_seq):
                yield _as_received(batch, times)

        feed = asyncio.create_task(_feed(messages, host, times))
        feed.add_done_callback(_report)
        try:
            yield FoldedJournal(client, writer, store, host, source)
        finally:
            with contextlib.suppress(NatsError):  # the broker may be gone before the feed
                await end_task(feed)
