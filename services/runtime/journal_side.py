"""The parts of a node on which use-cases are built: the writer's connection, the streams, the views, and their watches.

Invariant: when ``JournalSide.start`` returns, the views have caught up with the stream and every watch runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from ...schemas.access.operations import BROKER, BrokerAnswer, BrokerRequest
from ...schemas.core.broker_address import NO_FILES, BrokerLogin, LoginFiles
from ...schemas.core.errors import BrokerUnavailable, CrewJournalError, JournalDamaged
from ...schemas.settings import Settings
from ..desk import Caller
from ..journal.broker.broker import ManagedBroker, find_nats_server
from ..journal.broker.connection import BrokerConnection, connect
from ..journal.broker.streams import DeclaredStreams, declare_streams
from ..journal.intake.secrets import MODE_OF_SETTING
from ..journal.publishing import Writer
from ..journal.watch import Canary, GapWatch, Heartbeat, StallWatch, StreamWatch, Watch, disk_trouble
from ..node import Answers
from ..operate.status import disk_figures, space_trouble
from ..parts import Parts, end_task
from .embedding import broker_figures, connection_trouble, show_views, stream_section
from .views import NodeViews

# The node's connection to its broker, which is managed by the node or by the operator.


@dataclass(frozen=True, slots=True)
class BrokerLink:
    """Address and credentials of the broker.

    Attributes:
        managed: The broker, if the node runs it itself.
        url: Its address.
        user: The service's user.
        password: Its password.
        files: Files for the login at an operator's broker.
    """

    managed: ManagedBroker | None
    url: str
    user: str | None
    password: str | None = field(repr=False)
    files: LoginFiles = NO_FILES

    @property
    def login(self) -> BrokerLogin:
        """All of it."""
        return BrokerLogin(self.url, self.user, self.password, self.files)

    async def connect(self, stack: AsyncExitStack, name: str) -> BrokerConnection:
        """A new connection for one part of the node."""
        client = await connect(self.url, self.user, self.password, name, files=self.files)
        stack.push_async_callback(client.close)
        return client

    async def answer(self, _caller: Caller, _asked: BrokerRequest) -> BrokerAnswer:
        """The broker's address for reactors in other processes."""
        return BrokerAnswer(url=self.url, user=self.user, password=self.password)


async def open_link(
    stack: AsyncExitStack, settings: Settings, data_dir: Path, say: Callable[[str], None]
) -> BrokerLink:
    """Start the managed broker, or use the operator's.

    Raises:
        BrokerError: If nats-server is missing or does not start.
    """
    if settings.nats is not None:
        say(f"broker: {settings.nats} (its durability is unknown)")
        if "durability" in settings.model_fields_set:
            say(f"warning: {settings.durability!r} is for a managed broker; this one syncs as its operator says")
        return BrokerLink(None, settings.nats, settings.nats_user, settings.nats_password, settings.nats_files)
    binary = await asyncio.to_thread(find_nats_server, [settings.nats_dir], override=settings.nats_server)
    broker = ManagedBroker(data_dir, binary, settings.durability)
    await broker.start()
    stack.push_async_callback(broker.stop)
    say(f"broker: nats-server {broker.status().version} at {broker.url}, {settings.durability}")
    return BrokerLink(broker, broker.url, broker.user, broker.password)


def broker_promises(streams: DeclaredStreams) -> Iterator[str]:
    """What a broker that the node does not manage keeps, and what only its operator knows."""
    if streams.copies:
        yield "journal: " + ", ".join(f"{server} {state}" for server, state in streams.copies.items())
        survived = (streams.replicas - 1) // 2
        yield (
            f"an acknowledged entry survives the loss of {survived} of these servers; what a crash of all at once loses "
            "depends on their sync_interval"
        )
    else:
        yield "journal: one copy; what a crash of its server loses depends on its sync_interval (nats-server: 2 minutes)"


ANSWERS: Final[Answers] = ((BROKER, BrokerLink.answer),)
PATIENCE_S: Final = 0.25
"""Seconds that one of several nodes gathers entries and derived facts for which no task waits.

A commit costs 5 to 7 ms whatever it holds, and each node commits everything. At 50 appends a second, a node that follows
takes a quarter to two fifths less CPU than with ``BATCH_WAIT_S`` alone.
"""


@dataclass(frozen=True, slots=True)
class JournalSide:
    """The parts on which the rest of a node is built (tokens, recall, memory, HTTP).

    Attributes:
        client: The writer's connection.
        writer: The only writer of entries.
        views: The store and its host, which follows the stream.
        gap_watch: Reports sequences that the stream has lost.
    """

    client: BrokerConnection
    writer: Writer
    views: NodeViews
    gap_watch: GapWatch

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        parts: Parts,
        link: BrokerLink,
        settings: Settings,
        data_dir: Path,
        *,
        clock: Callable[[], datetime],
        say: Callable[[str], None],
        give_up: Callable[[CrewJournalError], None],
    ) -> JournalSide:
        """Start it; ``stack`` stops it.

        Args:
            stack: Of the node.
            parts: Where each part shows its figures and troubles.
            link: To the broker.
            settings: Of the node.
            data_dir: The resolved data directory.
            clock: Of the services.
            say: Called with one line for each part that starts.
            give_up: Called when the node cannot go on.
        """
        broker = link.managed
        client = await link.connect(stack, "crew-journal writer")
        streams = await declare_streams(client, replicas=settings.replicas)
        if settings.nats is not None:
            for line in broker_promises(streams):
                say(line)
        durable = broker is not None and broker.durability == "durable"
        writer = Writer(
            client,
            atomic=streams.atomic,
            group_commit=durable and streams.atomic,
            storage=lambda: disk_trouble(data_dir) if broker is not None else None,
        )
        await writer.open()
        stack.push_async_callback(writer.close)
        views = await NodeViews.start(
            stack,
            data_dir,
            client,
            writer,
            streams=streams,
            memory_mb=settings.duckdb_memory_mb,
            clock=clock,
            say=say,
            own_broker=broker is not None,
            scrubber=MODE_OF_SETTING[settings.secrets],
            nats=link.login,
        )
        patience_s = 0.0 if settings.node is None else PATIENCE_S
        feed = await views.follow(stack, data_dir, client, link.login, patience_s)
        watching = asyncio.create_task(_watch(client, give_up), name="connection-watch")
        stack.push_async_callback(end_task, watching)
        parts.show("stream", partial(stream_section, client, views.store))
        parts.show("broker", lambda: broker_figures(broker, link.url, client))
        parts.show("connection", lambda: client.state, lambda: connection_trouble(client))
        parts.show("disk", partial(disk_figures, data_dir), partial(space_trouble, data_dir))
        show_views(parts, views, feed)
        stream_watch = await parts.begin("stream_watch", StreamWatch(client, streams.made))
        gap_watch = await parts.begin(
            "journal_damage", views.watch(client, streams, broker, clock=clock, give_up=give_up)
        )
        if (loss := gap_watch.loss) is not None:
            say(f"warning: {loss}; {JournalDamaged.HINT}")
        else:
            await views.forget_damaged()
        canary = await parts.begin("canary", Canary(client, clock=clock))
        heartbeat = Heartbeat(await link.connect(stack, "crew-journal heartbeat"), broker)
        await parts.begin("heartbeat", heartbeat)
        stall_watch = await parts.begin("stall_watch", StallWatch(writer, canary, stream_watch, broker, data_dir))
        await parts.begin("watch", Watch(client, stream_watch, gap_watch, canary, heartbeat, stall_watch))
        return cls(client, writer, views, gap_watch)


async def _watch(client: BrokerConnection, give_up: Callable[[CrewJournalError], None]) -> None:
    """Stop the node when the writer's connection is closed permanently, so that the supervisor starts a new node."""
    await client.ended.wait()
    why = f"the connection to the broker was closed for good: {client.state.last_error}"
    give_up(BrokerUnavailable(why, hint="start the node again"))
