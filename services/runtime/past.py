"""The views as of a past moment: the present stream folded up to a sequence into a file of its own, with a node over it.

A past view stays at its sequence and is kept for a while. A walk is a view that is folded on, from one moment to a later
one, for a request that asks at many moments.

Invariant: what was erased since is not in a past view, because the stream no longer has it, and because every view is
dropped when an erasure is announced and when it is completed. What a person withdrew since is not in it either: its
profiles are those rows of now that held then, withdrawn consents are those of now, and views are dropped when such rows
change. A past node records nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import duckdb

from ...consumers.feed.messages import RawMessage
from ...consumers.host.bulk import ReplaySource, fold_range
from ...consumers.host.rebuild import Fresh, beside
from ...schemas.core.errors import FoldError, InvalidQuery, NotAllowed, Unavailable
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.table import as_of
from ...schemas.core.timestamps import from_ms, parse_ts, to_ms
from ...schemas.decode import decode
from ...schemas.entries.tables import ENTRIES
from ...schemas.erasure.lineage import names_of, sources_of
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.operators.tables import OPERATOR_CONSENTS, OPERATOR_PROFILES
from ..access.tokens import TokenRegistry
from ..desk import Desk
from ..entries.queries import JournalQueries
from ..journal.intake.append import Journal
from ..node import Node, PastWalk
from ..parts import Part, Parts
from .composition import desk_of, make_node
from .embedding import Embedding
from .views import NodeViews

AT_MOST: Final = 2
"""Past views that are kept: each is a file of about the size of the live views' and has up to 128 MiB of memory."""
IDLE_S: Final = 600.0
"""Seconds without a request after which a past view is dropped: somebody who compares two moments asks more often."""
MEMORY_MB: Final = 128
INDEX_MB: Final = 64
SCRATCH: Final = "asof"

_HINT: Final = "is a sequence of the journal, or a time like 2026-11-21T09:30:00Z"
_AFTER: Final = f"SELECT min(seq) FROM {ENTRIES} WHERE published_ms > ?"
_LAST: Final = f"SELECT max(published_ms) FROM {ENTRIES}"
_PROFILES: Final = f"""SELECT {OPERATOR_PROFILES.names.replace("until_seq", "NULL")} FROM {OPERATOR_PROFILES}"""
_WITHDRAWN: Final = f"SELECT {OPERATOR_CONSENTS.names} FROM {OPERATOR_CONSENTS} WHERE NOT granted"


class _NothingRecorded:
    """Stands for the journal and the writer of a past node."""

    def __getattr__(self, name: str) -> Any:
        raise NotAllowed("nothing is recorded as of a past moment", hint="leave as_of out")


@dataclass(slots=True)
class _Kept:
    """A past view and the node over it."""

    seq: int
    node: Node
    desk: Desk
    queries: JournalQueries
    close: AsyncExitStack
    users: int = 0
    dropped: bool = False
    timer: asyncio.TimerHandle | None = field(default=None)


class _LeftOut:
    """Leaves messages, and all that was made of them, out of a stream that is read once in order.

    Args:
        workspace_id: The workspace of the messages.
        names: Names of the messages, as in ``schemas/erasure/lineage``.
    """

    def __init__(self, workspace_id: str, names: Sequence[str]) -> None:
        self._workspace_id = workspace_id
        self._names = set(names)
        self.wanted = bool(names)
        self.count = 0

    def over(self, source: ReplaySource) -> ReplaySource:
        """The source without them."""

        async def read(first_seq: int, last_seq: int) -> AsyncIterator[list[RawMessage]]:
            async for batch in source(first_seq, last_seq):
                yield await asyncio.to_thread(self._rest, batch)

        return read

    def _rest(self, batch: list[RawMessage]) -> list[RawMessage]:
        return [message for message in batch if not self._takes(message)]

    def _takes(self, message: RawMessage) -> bool:
        try:
            event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
        except FoldError:
            return False  # the host parks it
        if event.workspace_id != self._workspace_id:
            return False
        own = names_of(event)
        if self._names.isdisjoint(own) and self._names.isdisjoint(sources_of(event)):
            return False
        self._names.update(own)
        self.count += 1
        return True


class _Walk:
    """A view that is folded on; see ``PastWalk``."""

    def __init__(self, past: PastViews, stack: AsyncExitStack, fresh: Fresh, left_out: _LeftOut) -> None:
        self._past, self._stack, self._fresh, self._left_out = past, stack, fresh, left_out
        self._moment: datetime | None = None
        self._node: Node | None = None
        self.seq = 0
        self.dropped = False

    @property
    def left_out(self) -> int:
        """Messages that were left out so far."""
        return self._left_out.count

    async def to(self, seq: int) -> Node:
        """Fold on to a sequence that is not before the last one; the node there."""
        if self.dropped:
            raise Unavailable("an erasure began", hint="repeat the request when it is completed")
        if seq > self.seq:
            await self._past.fold(self._fresh, self._left_out, seq)
            self.seq = seq
        self._moment = await self._past.moment_of(self._fresh)
        if self._node is None:
            self._node = await self._past.over(self._stack, self._fresh.store, lambda: self._moment or from_ms(0))
        await self._node.recall.settled()  # a model may have been switched on the way
        return self._node


class PastViews(Part):
    """Past views of a node, folded at the first request for a sequence and kept for a while.

    Args:
        node: The node of now.
        views: Its views.
        embedding: Its embedding models.
        tokens: The tokens, whose rights are those of now.
        static_table: Returns the table of late interaction, or None.
    """

    def __init__(
        self,
        node: Node,
        views: NodeViews,
        embedding: Embedding,
        tokens: TokenRegistry,
        static_table: Callable[[], Any],
    ) -> None:
        self._node = node
        self._views = views
        self._embedding = embedding
        self._tokens = tokens
        self._static_table = static_table
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._walks: set[_Walk] = set()
        self._made = 0
        self._drops = 0
        self._folding = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None

    # as a part of the node

    async def start(self) -> None:
        """Delete what a crash left, and watch for erasures."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(_delete_left, self._views.store.path)
        self._unsubscribe = self._views.store.subscribe(self._on_commit)

    async def stop(self) -> None:
        """Drop all views."""
        self._unsubscribe()
        await self.drop()

    def figures(self) -> Any:
        """The sequences of the kept views."""
        return {"kept": list(self._kept)} if self._kept else None

    async def drop(self) -> None:
        """Drop all views; those in use are dropped when they are no longer used."""
        self._drop_all()
        if self._closing:
            await asyncio.wait(self._closing)

    # for requests

    @asynccontextmanager
    async def at(self, moment: str, field: str) -> AsyncIterator[_Kept]:
        """The desk and the queries as of a sequence or a time.

        Raises:
            InvalidQuery: If it is neither, or later than the stream.
            Unavailable: If the disk is too full for another views file.
        """
        seq, time = await self._sequence(moment, field)
        async with self._folding:  # one fold at a time: it takes a core
            kept = self._kept.get(seq) or await self._fold(seq, time)
            if not kept.dropped:
                self._kept.move_to_end(seq)
            kept.users += 1
            for other in list(self._kept)[:-AT_MOST]:
                self._drop(other)
        if kept.timer is not None:
            kept.timer.cancel()
        try:
            yield kept
        finally:
            kept.users -= 1
            if kept.dropped and not kept.users:
                self._close(kept)
            elif not kept.dropped:
                kept.timer = asyncio.get_running_loop().call_later(IDLE_S, self._drop, seq)

    @asynccontextmanager
    async def walk(self, workspace_id: str = "", without: Sequence[str] = ()) -> AsyncIterator[PastWalk]:
        """A view before the first message, to be folded on.

        Args:
            workspace_id: The workspace of the messages that are left out.
            without: Names of messages that are left out with all that was made of them.

        Raises:
            Unavailable: If the disk is too full for another views file.
        """
        live = self._views
        async with AsyncExitStack() as stack:
            memory_mb = min(MEMORY_MB, live.memory_mb)
            fresh = await stack.enter_async_context(beside(live.host, live.host.projections, self._name(), memory_mb))
            walk = _Walk(self, stack, fresh, _LeftOut(workspace_id, without))
            self._walks.add(walk)
            stack.callback(self._walks.discard, walk)
            yield walk

    async def fold(self, fresh: Fresh, left_out: _LeftOut, seq: int) -> None:
        """Fold a walk on; one fold at a time, as each takes a core."""
        source = self._views.source
        async with self._folding:
            await fold_range(fresh.host, left_out.over(source) if left_out.wanted else source, seq)

    async def moment_of(self, fresh: Fresh) -> datetime:
        """The time of the last entry of a view; now if there is none."""
        [(last_ms,)] = await asyncio.to_thread(fresh.store.rows, _LAST, [])
        return self._node.clock() if last_ms is None else from_ms(last_ms)

    async def sequence_of(self, moment: str, field: str) -> int:
        """The sequence that a sequence or time stands for; raises as ``at``, with the name of ``field``."""
        return (await self._sequence(moment, field))[0]

    async def _sequence(self, as_of: str, field: str) -> tuple[int, datetime | None]:
        """The sequence, and the time if one was named: the last message before the first entry after it."""
        store = self._views.store
        if as_of.isdecimal():
            seq = int(as_of)
            if not 1 <= seq <= store.view_seq():
                raise InvalidQuery(
                    f"{field}: the views are at {store.view_seq():,}, and the first message is 1",
                    hint=f"{field} {_HINT}",
                    field=field,
                )
            return seq, None
        try:
            moment = parse_ts(as_of)
        except ValueError as error:
            raise InvalidQuery(
                f"{field}: {error}",
                hint=f"{field} {_HINT}",
                field=field,
            ) from None
        [(after,)] = await asyncio.to_thread(store.rows, _AFTER, [to_ms(moment)])
        seq = store.view_seq() if after is None else after - 1
        if seq < 1:
            raise InvalidQuery(f"{field}: the journal is younger", hint="name a later time", field=field)
        return seq, moment

    async def _fold(self, seq: int, moment: datetime | None) -> _Kept:
        live, drops = self._views, self._drops
        async with AsyncExitStack() as opening:
            fresh = await opening.enter_async_context(
                beside(live.host, live.host.projections, self._name(), min(MEMORY_MB, live.memory_mb))
            )
            await fold_range(fresh.host, live.source, seq)
            held = await asyncio.to_thread(live.store.rows, f"{_PROFILES} WHERE {as_of(seq)}", [])
            withdrawn = await asyncio.to_thread(live.store.rows, _WITHDRAWN, [])
            await fresh.store.write(lambda con: _withdraw(con, held, withdrawn))
            at = await self.moment_of(fresh) if moment is None else moment
            node = await self.over(opening, fresh.store, lambda: at)
            kept = _Kept(seq, node, desk_of(node, past=True), node.queries, opening.pop_all())
        if drops == self._drops:
            self._kept[seq] = kept
        else:
            kept.dropped = True
        return kept

    async def over(self, stack: AsyncExitStack, views: ViewReader, clock: Callable[[], datetime]) -> Node:
        """A node over past views that records nothing."""
        nothing, settings = _NothingRecorded(), self._node.settings
        node = await make_node(
            stack,
            Parts(stack),
            views=views,
            journal=cast("Journal", nothing),
            writer=cast("Any", nothing),
            settings=settings.model_copy(
                update={"query_log": False, "hot_index_mb": min(INDEX_MB, settings.hot_index_mb)}
            ),
            clock=clock,
            subject_key=self._node.subject_key,
            embedding=self._embedding,
            static_table=self._static_table,
            trouble=lambda: None,
        )
        node.put(TokenRegistry, self._tokens)
        return node

    def _name(self) -> str:
        """What the next file is called; a dropped view of the same sequence may still be in use."""
        self._made += 1
        return f"{SCRATCH}-{self._made}"

    # dropping

    def _on_commit(self, batch: CommittedBatch) -> None:
        """Drop the views when an erasure changed its state, or profiles went; called on the thread that folds."""
        if self._loop is None:
            return
        profiles = batch.changes.get(OPERATOR_PROFILES.name)
        if ERASURE_ROWS.name in batch.changes:
            self._loop.call_soon_threadsafe(self._drop_all)
        elif profiles is not None and profiles.removed:
            self._loop.call_soon_threadsafe(self._drop_kept)

    def _drop_all(self) -> None:
        for walk in self._walks:
            walk.dropped = True
        self._drop_kept()

    def _drop_kept(self) -> None:
        self._drops += 1  # what is being folded is not kept
        for seq in list(self._kept):
            self._drop(seq)

    def _drop(self, seq: int) -> None:
        if (kept := self._kept.pop(seq, None)) is None:
            return
        kept.dropped = True
        if kept.timer is not None:
            kept.timer.cancel()
        if not kept.users:
            self._close(kept)

    def _close(self, kept: _Kept) -> None:
        closing = asyncio.get_running_loop().create_task(kept.close.aclose(), name="past-views-close")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _withdraw(
    con: duckdb.DuckDBPyConnection, profiles: Sequence[tuple[Any, ...]], withdrawn: Sequence[tuple[Any, ...]]
) -> None:
    """Set the profiles and the withdrawn consents of a past view to what is left of them now."""
    con.execute(f"DELETE FROM {OPERATOR_PROFILES}")
    for workspace_id, slug, *_ in withdrawn:
        con.execute(f"DELETE FROM {OPERATOR_CONSENTS} WHERE workspace_id = ? AND slug = ?", [workspace_id, slug])
    for table, rows in ((OPERATOR_PROFILES, profiles), (OPERATOR_CONSENTS, withdrawn)):
        if rows:
            marks = ", ".join("?" * len(table.columns))
            con.executemany(f"INSERT INTO {table} ({table.names}) VALUES ({marks})", rows)


def _delete_left(views: Path) -> None:
    for file in views.parent.glob(f"{views.name}.{SCRATCH}-*"):
        file.unlink(missing_ok=True)
