"""The parts of a node below the use-cases: the writer's connection, the streams, the views, and their watches.

Invariant: when ``JournalSide.start`` returns, the views have caught up with the stream and every watch runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from ...schemas.errors import BrokerUnavailable, CrewJournalError, JournalDamaged
from ...schemas.settings import Settings
from ..endings import end_task
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import declare_streams
from ..journal.intake.secrets import MODE_OF_SETTING
from ..journal.publishing.writer import Writer
from ..journal.watch.canary import Canary
from ..journal.watch.gap_watch import GapWatch
from ..journal.watch.heartbeat import Heartbeat
from ..journal.watch.stall_watch import StallWatch
from ..journal.watch.storage import disk_trouble
from ..journal.watch.stream_watch import StreamWatch
from ..journal.watch.watch_loop import Watch
from ..operating.status import disk_figures, space_trouble
from ..parts import Parts
from .figures import broker_figures, connection_trouble, show_views, stream_section
from .link import BrokerLink
from .views import NodeViews


@dataclass(frozen=True, slots=True)
class JournalSide:
    """The parts on which the rest of a node is built (tokens, recall, memory, HTTP).

    Attributes:
        client: The writer's connection.
        writer: The only one that publishes entries.
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
        )
        feed = await views.follow(stack, data_dir, client, link.address)
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
    """Give up when the writer's connection is closed for good, so that the supervisor starts a new node."""
    await client.ended.wait()
    why = f"the connection to the broker was closed for good: {client.state.last_error}"
    give_up(BrokerUnavailable(why, hint="start the node again"))
