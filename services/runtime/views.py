"""A node's views: opened, brought up to the stream's end, kept there by the live feed, and rebuilt or verified on demand.

Invariant: when ``start`` returns, everything that the stream held is folded, into every view that can fold it; what follows
is folded in order, and what cannot be folded is parked, not lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.live import LiveFeed
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.consumers.host.bulk import ReplaySource, fold_range
from crew_journal.consumers.host.catchup import catch_up, keep_up
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.opening import PutAside, open_views
from crew_journal.consumers.host.prepare import Parked
from crew_journal.consumers.host.provenance import StreamAtHand
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.endings import end_task
from crew_journal.schemas.settings import BATCH_MESSAGES, REPLAY_BATCH_MESSAGES
from crew_journal.services.data_dir import node_id
from crew_journal.services.journal.append import Journal
from crew_journal.services.journal.connection import Connection
from crew_journal.services.journal.deadletters import DeadLetters
from crew_journal.services.journal.streams import DeclaredStreams
from crew_journal.services.journal.writer import Writer
from crew_journal.services.operations import Progress
from crew_journal.services.runtime.figures import mapping

VIEWS_FILE: Final = "views.duckdb"


@dataclass(frozen=True, slots=True)
class NodeViews:
    """What ``start`` opened; closed by its stack.

    Attributes:
        store: The views, for reading.
        host: Folds into them.
        journal: Appends, knowing which ids were folded.
        desk: Where what cannot be folded is kept.
        source: Reads the stream for folds of many messages at once.
        memory_mb: Memory of DuckDB, for rebuilds too.
        aside: The file that was put aside for this one, None if none was.
    """

    store: ViewStore
    host: Host
    journal: Journal
    desk: DeadLetters
    source: ReplaySource
    memory_mb: int
    aside: PutAside | None = None

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        data_dir: Path,
        client: Connection,
        writer: Writer,
        *,
        streams: DeclaredStreams,
        memory_mb: int,
        clock: Callable[[], datetime],
        say: Callable[[str], None],
    ) -> Self:
        """Open the views and fold what they lack.

        Args:
            stack: Closes what is opened, in reverse order.
            data_dir: Holds the views.
            client: Reads the stream.
            writer: Appends to it.
            streams: What they are declared as: where the stream ends now, and which one it is.
            memory_mb: Memory of DuckDB.
            clock: The time now, UTC.
            say: Told, in a line each, what takes long or is unusual.
        """
        last_seq = streams.last_seq
        at_hand = StreamAtHand(streams.made, last_seq, _message_reader(client))
        store, aside = await asyncio.to_thread(open_views, data_dir / VIEWS_FILE, memory_mb=memory_mb, stream=at_hand)
        if aside is not None:
            say(aside_text(aside))
        stack.callback(store.close)
        desks: list[DeadLetters] = []

        async def park(parked: Parked) -> None:
            await desks[0].park(parked.projection, parked.version, parked.message, parked.reason)

        host = Host(store, discover_projections(), park=park)
        journal = Journal(writer, host.identities, clock=clock)
        desks.append(DeadLetters(writer, journal, host.identities))
        await host.open()
        stack.push_async_callback(host.close)
        source = _source(client, REPLAY_BATCH_MESSAGES)
        many = last_seq - host.checkpoint > REPLAY_BATCH_MESSAGES
        if many:
            say(f"views: folding {last_seq - host.checkpoint} messages")
        await fold_range(host, source, last_seq)
        if behind := host.laggards:  # who starts after us decides by them: which model is active, whose token counts
            say(f"views: bringing up to date {', '.join(behind)}")
            await catch_up(host, source)
        if many or behind:
            await store.give_back()  # before hot indexes are loaded beside what the fold has freed
        keeping_up = asyncio.create_task(keep_up(host, source), name="catch-up")
        stack.push_async_callback(end_task, keeping_up)
        return cls(store, host, journal, desks[0], source, memory_mb, aside)

    async def follow(
        self, stack: AsyncExitStack, data_dir: Path, client: Connection, nats: tuple[str, str | None, str | None]
    ) -> LiveFeed:
        """Fold what comes from here on; the feed has a connection of its own to ``nats`` (URL, user, password)."""
        feed = LiveFeed(
            *nats,
            handler=self.host.fold,
            start_seq=self.host.checkpoint + 1,
            durable=f"views-{node_id(data_dir)}",
            catch_up=partial(fold_range, self.host, _source(client, BATCH_MESSAGES)),
        )
        await feed.start()
        stack.push_async_callback(feed.stop)
        return feed

    async def rebuild(self, names: Sequence[str] | None, progress: Progress) -> Mapping[str, Any]:
        """Build views anew from the stream, all if ``names`` is None, and put them in place of the old ones."""
        return mapping(await rebuild(self.host, self.source, memory_mb=self.memory_mb, names=names, progress=progress))

    async def verify(self, progress: Progress) -> Mapping[str, Any]:
        """Build views anew beside the live ones and compare the two."""
        results = await verify(self.host, self.source, memory_mb=self.memory_mb, progress=progress)
        return {"equal": all(result.equal for result in results), "projections": results}


def aside_text(aside: PutAside) -> str:
    """A line for whoever starts the node."""
    return f"warning: {aside.reason}; folded anew from the journal, the old file is kept as {aside.name}"


def _message_reader(client: Connection) -> Callable[[int], RawMessage | None]:
    """Reads one stored message, for threads beside this event loop."""
    loop = asyncio.get_running_loop()

    async def find(seq: int) -> RawMessage | None:
        async with aclosing(replay(client, seq, seq, batch=1)) as found:
            return next((message for message in await anext(found, []) if message.seq == seq), None)

    return lambda seq: asyncio.run_coroutine_threadsafe(find(seq), loop).result()


def _source(client: Connection, batch: int) -> ReplaySource:
    def read(first_seq: int, last_seq: int) -> AsyncIterator[list[RawMessage]]:
        return replay(client, first_seq, last_seq, batch=batch)

    return read
