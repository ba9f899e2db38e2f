"""Opens a node's views, folds them up to the stream's end, keeps them there by the live feed, and rebuilds or verifies them.

Invariant: when ``start`` returns, all messages of the stream are folded into every view that can fold them; later
messages are folded in order, and a message that cannot be folded is parked.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from ...consumers.discovery import discover_projections
from ...consumers.feed.live import LiveFeed
from ...consumers.feed.messages import RawMessage
from ...consumers.feed.replay import replay
from ...consumers.host.bulk import (
    Lack,
    ReadAccount,
    RebuildRefused,
    ReplaySource,
    catch_up,
    explained,
    fold_range,
    keep_up,
    read_through,
)
from ...consumers.host.folding import Parked
from ...consumers.host.host import Host
from ...consumers.host.opening import AHEAD, PutAside, StreamAtHand, forget_damaged, open_views
from ...consumers.host.rebuild import BEFORE_LOSS, Rebuilt, rebuild, verify
from ...consumers.host.salvage import Unread, salvage
from ...consumers.host.store import ViewStore
from ...schemas.core.broker_address import BrokerLogin
from ...schemas.core.entry import ActorType, Severity
from ...schemas.core.errors import CrewJournalError, InvalidQuery, JournalDamaged
from ...schemas.core.ids import SYSTEM_WORKSPACE, uuid7_hex
from ...schemas.core.recorded_settings import ScrubberMode
from ...schemas.core.sequence_set import Range, format_ranges, in_parts, normalised, sequences_text, size_of, without
from ...schemas.entries.events import LossAccepted
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.settings import BATCH_MESSAGES, REPLAY_BATCH_MESSAGES
from ..data_dir import node_id, subject_key
from ..entries.rows import SupersedingCheck
from ..journal.broker.broker import ManagedBroker, damage_warnings
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import DeclaredStreams, stream_gaps
from ..journal.intake.append import Journal
from ..journal.intake.secrets import DEFAULT_MODE, SecretGuard
from ..journal.publishing import Writer
from ..journal.watch import GapWatch
from ..operate.letters import DeadLetters
from ..operate.status import LongOperations, Progress, Records, as_json
from ..parts import end_task
from .folding_apart import fold_apart

# Accepts a loss of the journal: records the lost sequences, which explains them, and keeps the old views.


MAX_NAMED: Final = 20_000
"""Maximum ids of lost entries in the record; `salvage` writes all lost entries."""
REASON: Final = "accepted with rebuild --accept-loss"


def ahead_files(views: Path) -> list[str]:
    """Names of view files with entries that the stream has lost, until the loss is accepted."""
    return sorted(path.name for path in views.parent.glob(f"{views.name}{AHEAD}*") if path.suffix != ".wal")


async def record_loss(
    journal: Journal, views: Path, rebuilt: Rebuilt, missing: Sequence[Range], *, actor: str | None
) -> int:
    """Record the loss, then mark these view files as accepted.

    Args:
        journal: The journal for the record.
        views: The views file.
        rebuilt: The replaced views.
        missing: Sequences that were missing before.
        actor: Id of the token that accepts it.

    Returns:
        The sequence of the record, 0 if nothing was lost.
    """
    lack, ahead = rebuilt.lack, ahead_files(views)
    lost = normalised([*missing, *(lack.sequences if lack is not None else ())])
    ids = [entry_id for _, entry_id in lack.ids[:MAX_NAMED]] if lack is not None else []
    if not (lost or ids or ahead):
        return 0
    kept_as = ", ".join([*([rebuilt.kept_as] if rebuilt.kept_as else []), *(_accepted(name) for name in ahead)])[:255]
    loss_id, parts, seq = f"l_{uuid7_hex()}", in_parts(lost, ids), 0
    for number, part in enumerate(parts, 1):
        payload = LossAccepted(
            loss_id=loss_id, lost=part, part=number, parts=len(parts), kept_as=kept_as, reason=REASON
        )
        appended = await journal.record(
            SYSTEM_WORKSPACE,
            payload,
            summary=f"loss of {size_of(lost):,} sequences of the journal accepted ({number} of {len(parts)})",
            severity=Severity.WARN,
            actor_type=ActorType.USER if actor is not None else ActorType.SYSTEM,
            actor_id=actor,
        )
        seq = appended.seq
    for name in ahead:
        for suffix in ("", ".wal"):
            old = views.with_name(name + suffix)
            if old.exists():
                old.replace(views.with_name(_accepted(name) + suffix))
    journal.forget_lost(lost)
    return seq


def _accepted(name: str) -> str:
    return name.replace(AHEAD, BEFORE_LOSS) + "-end"


VIEWS_FILE: Final = "views.duckdb"
_VIEWS_PURPOSE: Final = b"crew-journal views"
"""Of the hash of the journal's key by which a file of views is recognised."""
RESTART_HINT: Final = "start the node again: it keeps the views that know what was lost"
_ERASED_SINCE: Final = f"SELECT 1 FROM {ERASURE_ROWS} WHERE state = 'completed' AND messages > 0 AND seq > ? LIMIT 1"
"""Erasures that were completed after the views were folded: their rows are in an older copy of the file."""
LOSS_FOLD_S: Final = 30.0
"""Seconds for the views to fold the record of an accepted loss, which is in the next batch."""


@dataclass(frozen=True, slots=True)
class NodeViews:
    """The opened views and their parts; closed by the stack.

    Attributes:
        store: The views, for reading.
        host: Folds into them.
        journal: Appends, knowing which ids were folded.
        desk: Keeps events that cannot be folded.
        source: Reads the stream for folds of many messages at once.
        account: Sequences that reads of the stream did not return.
        memory_mb: Memory of DuckDB, for rebuilds too.
        aside: The file that was renamed for this one, None if there is none.
        read_whole: Whether the stream was read from its beginning.
        nats: The broker, for rebuilds in a process of their own.
        followers: Get the messages of the live feed after they were folded.
    """

    store: ViewStore
    host: Host
    journal: Journal
    desk: DeadLetters
    source: ReplaySource
    account: ReadAccount
    memory_mb: int
    aside: PutAside | None = None
    read_whole: bool = False
    nats: BrokerLogin | None = None
    followers: list[Callable[[Sequence[RawMessage]], None]] = field(default_factory=list)

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        data_dir: Path,
        client: BrokerConnection,
        writer: Writer,
        *,
        streams: DeclaredStreams,
        memory_mb: int,
        clock: Callable[[], datetime],
        say: Callable[[str], None],
        own_broker: bool = False,
        scrubber: ScrubberMode = DEFAULT_MODE,
        nats: BrokerLogin | None = None,
    ) -> Self:
        """Open the views and fold missing messages.

        Args:
            stack: Closes the opened parts, in reverse order.
            data_dir: Holds the views.
            client: Reads the stream.
            writer: Appends to it.
            streams: The declared streams: the last sequence and the identity of JOURNAL.
            memory_mb: Memory limit of DuckDB in MB.
            clock: The time now, UTC.
            say: Called with one line for each step that takes long or is unusual.
            own_broker: Whether the stream is stored in ``data_dir``, too.
            scrubber: Treatment of credentials in a workspace without a setting.
            nats: The broker; without it, rebuilds fold in this process.
        """
        last_seq = streams.last_seq
        key = hmac.digest(subject_key(data_dir), _VIEWS_PURPOSE, "sha256").hex()
        at_hand = StreamAtHand(streams.made, last_seq, _message_reader(client), own_broker, key)
        store, aside = await asyncio.to_thread(open_views, data_dir / VIEWS_FILE, memory_mb=memory_mb, stream=at_hand)
        if aside is not None:
            say(aside_text(aside))
        stack.callback(store.close)
        desks: list[DeadLetters] = []

        async def park(parked: Parked) -> None:
            await desks[0].park(parked.projection, parked.version, parked.message, parked.reason)

        host = Host(store, discover_projections(), park=park)
        secrets = SecretGuard(store, scrubber)
        stack.callback(secrets.close)
        journal = Journal(writer, host.identities, clock=clock, superseding=SupersedingCheck(store), secrets=secrets)
        desks.append(DeadLetters(writer, journal, host.identities))
        source = replay_source(client, REPLAY_BATCH_MESSAGES)
        account = ReadAccount()
        hold = await _reason_to_hold(host, client, source, last_seq, account)
        if hold is not None:
            say(f"warning: {hold}")
        await host.open(hold=hold)
        stack.push_async_callback(host.close)
        counted = account.counted(source)
        opened_at = host.checkpoint
        read_whole = opened_at == 0
        many = last_seq - host.checkpoint > REPLAY_BATCH_MESSAGES
        if many:
            say(f"views: folding {last_seq - host.checkpoint} messages")
        await fold_range(host, counted, last_seq)
        if behind := sorted(
            set(host.laggards) - host.folder.held
        ):  # parts that start later read these views: active models, valid tokens
            say(f"views: bringing up to date {', '.join(behind)}")
            await catch_up(host, counted)
        erased = await asyncio.to_thread(store.rows, _ERASED_SINCE, [opened_at])
        if opened_at and erased:
            say("views: folding again, because they were made before an erasure")
            try:
                await rebuild(host, source, memory_mb=memory_mb)
            except CrewJournalError as error:  # a damaged journal or a full disk: `rebuild` once that is repaired
                say(f"warning: the views may hold what was erased: {error.message}")
        if many or behind:
            await store.give_back()  # returns the fold's freed memory before in-memory indexes are loaded
        keeping_up = asyncio.create_task(keep_up(host, counted), name="catch-up")
        stack.push_async_callback(end_task, keeping_up)
        return cls(store, host, journal, desks[0], source, account, memory_mb, aside, read_whole, nats)

    async def forget_damaged(self) -> None:
        """Remove damaged files that were put aside earlier, if the whole stream was read and lacks nothing."""
        if not self.read_whole:
            return
        explains = await asyncio.to_thread(explained, self.store)
        if not without(self.account.missing, explains.ranges):
            await asyncio.to_thread(forget_damaged, self.store.path)

    async def follow(
        self, stack: AsyncExitStack, data_dir: Path, client: BrokerConnection, nats: BrokerLogin, patience_s: float
    ) -> LiveFeed:
        """Fold new messages from now on; the feed has a separate connection to ``nats``.

        ``patience_s`` is for messages for which no task waits.
        """
        feed = LiveFeed(
            *nats[:3],
            files=nats.files,
            handler=self._fold,
            start_seq=self.host.checkpoint + 1,
            durable=f"views-{node_id(data_dir)}",
            catch_up=partial(fold_range, self.host, self.account.counted(replay_source(client, BATCH_MESSAGES))),
            patience_s=patience_s,
            awaited=self.store.is_awaited,
        )
        self.store.on_wait = feed.look
        await feed.start()
        stack.push_async_callback(feed.stop)
        return feed

    async def _fold(self, messages: list[RawMessage]) -> None:
        self.account.account(self.host.checkpoint + 1, messages)
        await self.host.fold(messages)
        for take in self.followers:
            take(messages)

    def watch(
        self,
        client: BrokerConnection,
        streams: DeclaredStreams,
        broker: ManagedBroker | None,
        *,
        clock: Callable[[], datetime],
        give_up: Callable[[CrewJournalError], None],
    ) -> GapWatch:
        """A watch, not started yet, that checks whether the stream still holds all acked messages.

        Args:
            client: Asks the broker.
            streams: The streams as declared at the start.
            broker: The broker whose log is read; None if the node did not start it.
            clock: The time now, UTC.
            give_up: Called if the stream loses its end: later messages then get sequences that the views have already
                passed, and only a restart can keep these views and build new ones.
        """

        def said() -> list[str]:
            if broker is None:
                return []  # the log belongs to another process
            status = broker.status()
            return damage_warnings(status.log_path, status.pid)

        return GapWatch(
            client,
            made=streams.made,
            last_seq=streams.last_seq,
            clock=clock,
            read=lambda: self.account.missing,
            explained=lambda: explained(self.store).ranges,
            folded=lambda seq, wait_s: self.store.wait_for(seq, wait_s, ADMISSION_PROJECTION),
            kept=lambda: ahead_files(self.store.path),
            said=said,
            on_lost_end=lambda reason: give_up(JournalDamaged(reason, hint=RESTART_HINT)),
        )

    async def rebuild(
        self, watch: GapWatch, names: Sequence[str] | None, accept_loss: bool, actor: str | None, progress: Progress
    ) -> Mapping[str, Any]:
        """Build views again from the stream, all if ``names`` is None, and replace the old ones with them.

        Args:
            watch: Knows whether the journal is damaged.
            names: The views to build.
            accept_loss: Whether to accept the loss of entries; this is recorded, and the old views file is kept.
            actor: Token of the caller.
            progress: Called with the progress.

        Raises:
            JournalDamaged: If the journal has lost something, and that is not accepted.
        """
        if accept_loss and names is not None:
            raise InvalidQuery("a loss can only be accepted for all views at once", hint="name no views")
        await watch.look()
        if not accept_loss and (loss := watch.loss) is not None:
            raise JournalDamaged(f"no view is rebuilt: {loss}", hint=JournalDamaged.HINT)
        try:
            done = await rebuild(
                self.host,
                self.source,
                memory_mb=self.memory_mb,
                names=names,
                accept_loss=accept_loss,
                progress=progress,
                apart=None if self.nats is None else partial(fold_apart, self.nats, self.memory_mb),
            )
        except RebuildRefused as refused:
            self.account.add(refused.lack.sequences)
            await watch.look()
            raise
        if accept_loss:
            seq = await record_loss(self.journal, self.store.path, done, watch.missing, actor=actor)
            await self.store.wait_for(seq, LOSS_FOLD_S, ADMISSION_PROJECTION)
            await watch.look()
        result = as_json(replace(done, lack=None))
        return result if done.lack is None else {**result, "lost": _lack_figures(done.lack)}

    def operations(self, watch: GapWatch, backup: Callable[[], Records]) -> LongOperations:
        """The long operations of this node."""
        return LongOperations(
            rebuild=partial(self.rebuild, watch),
            verify=partial(self.verify, watch),
            salvage=self.salvage,
            backup=backup,
        )

    async def verify(self, watch: GapWatch, progress: Progress) -> Mapping[str, Any]:
        """Build all views again beside the live ones and compare both; also reports missing sequences."""
        results = await verify(self.host, self.source, memory_mb=self.memory_mb, progress=progress)
        self.account.add(results.lack.sequences)
        await watch.look()
        equal = all(result.equal for result in results) and not results.lack and not watch.kept
        journal = {**_lack_figures(results.lack), "views_kept": list(watch.kept)}
        return {"equal": equal, "projections": list(results), "journal": journal}

    async def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        """The lost entries that the views still have: a record for each, then their number."""
        counts = {"entries": 0, "decisions": 0}
        unread = Unread()
        salvaged = salvage(
            self.host, self.source, memory_mb=self.memory_mb, progress=lambda _done, _total: None, unread=unread
        )
        async with aclosing(salvaged) as records:
            async for control, entry in records:
                kind = "decision" if control else "entry"
                counts["decisions" if control else "entries"] += 1
                yield {kind: entry}
        ranges = normalised([(seq, seq) for seq in sorted(unread.sequences)])
        lacking = {"unreadable": len(unread.sequences), "unreadable_sequences": format_ranges(ranges)}
        yield {"result": {**counts, **lacking, "damaged_files": unread.damaged}}


def _lack_figures(lack: Lack) -> dict[str, Any]:
    return {
        "missing": size_of(lack.sequences),
        "sequences": format_ranges(lack.sequences),
        "known_entries": len(lack.known),
    }


async def _reason_to_hold(
    host: Host, client: BrokerConnection, source: ReplaySource, last_seq: int, account: ReadAccount
) -> str | None:
    """Why views of a new version must keep the rows of the former one: messages of the stream are missing."""
    if not (outdated := await asyncio.to_thread(host.outdated)):
        return None
    account.add(await read_through(source, last_seq))
    missing = normalised([*(await stream_gaps(client)).ranges, *account.missing])
    if not (lost := without(missing, (await asyncio.to_thread(explained, host.store)).ranges)):
        return None
    return f"{', '.join(outdated)} kept as folded by the former version: the journal lacks {sequences_text(lost)}"


def aside_text(aside: PutAside) -> str:
    """The warning that the node prints at its start."""
    more = f" (if the journal has lost entries, too, `salvage` reads them from {aside.name})" if aside.damaged else ""
    return f"warning: {aside.reason}; rebuilt from the journal, the old file is kept as {aside.name}{more}"


def _message_reader(client: BrokerConnection) -> Callable[[int], RawMessage | None]:
    """A function that reads one stored message, for use in other threads."""
    loop = asyncio.get_running_loop()

    async def find(seq: int) -> RawMessage | None:
        async with aclosing(replay(client, seq, seq, batch=1)) as messages:
            return next((message for message in await anext(messages, []) if message.seq == seq), None)

    return lambda seq: asyncio.run_coroutine_threadsafe(find(seq), loop).result()


def replay_source(client: BrokerConnection, batch: int) -> ReplaySource:
    """Reads the stream in batches of at most ``batch`` messages."""

    def read(first_seq: int, last_seq: int) -> AsyncIterator[list[RawMessage]]:
        return replay(client, first_seq, last_seq, batch=batch)

    return read
