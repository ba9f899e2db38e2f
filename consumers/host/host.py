"""The host: one order of messages, one writer, and one transaction for the rows and checkpoints of all projections.

Invariant: ``fold`` returns after the commit, and only then may the feed ack. The checkpoint in DuckDB decides: messages at
or below it are skipped, so redelivery is harmless. The group's checkpoint is admission's.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

import duckdb
import structlog

from ...schemas.core.errors import Unavailable
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.settings import (
    BATCH_BYTES,
    FOLD_BACKOFF_MAX_S,
    FOLD_BACKOFF_S,
    FREE_DISK_FLOOR_BYTES,
    IDLE_TIDY_S,
    WAL_IDLE_BYTES,
)
from ..feed.messages import RawMessage, in_parts
from ..projection import Batch, Projection
from .admission import ADMISSION_TABLES, ADMISSION_VERSION, AdmissionView, IdentityIndex
from .faults import PARKINGS_DDL, PARKINGS_TABLE, FoldingStopped
from .folding import BatchFolder, Parked, Prepared, in_order, prepare
from .store import ViewStore
from .transaction import (
    CHECKPOINT_DDL,
    ProjectionTransaction,
    add_checkpoints,
    create_tables,
    ddl,
    drop_tables,
    existing_tables,
    forget,
    read_checkpoints,
    transaction,
)

# Maintains a view file while the host is idle: DuckDB checkpoints, and the housekeeping of projections.


_log = structlog.get_logger(__name__)


class TidiedHost(Protocol):
    """The part of ``host.Host`` that housekeeping needs."""

    store: ViewStore
    projections: tuple[Projection, ...]

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Prevent folds meanwhile."""
        ...


class Tidying:
    """When the host has been idle for a while, runs the projections' ``tidy`` and then a checkpoint."""

    def __init__(self, host: TidiedHost) -> None:
        self._host = host
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def after_commit(self) -> None:
        """Restart the idle time; checkpoint at once if the log exceeds its limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_TIDY_S, self._start)
        if self._host.store.wal_bytes > self._host.store.wal_bound and self._has_room():
            await self._checkpoint()

    def stop(self) -> None:
        """Cancel planned work; running work is completed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self.tidy())

    async def tidy(self) -> None:
        """One round of housekeeping, under the host's lock; none while the disk is full."""
        if not self._has_room():
            return
        async with self._host.paused():
            for projection in self._host.projections:
                if hasattr(projection, "tidy"):
                    try:
                        await self._host.store.write(lambda con, p=projection: _tidy(con, p))  # type: ignore[misc]
                    except Exception as error:  # the views are unchanged; the next round retries
                        _log.warning("tidy_failed", projection=projection.name, error=type(error).__name__)
            if self._host.store.wal_bytes > WAL_IDLE_BYTES:
                await self._checkpoint()

    def _has_room(self) -> bool:
        """Whether the disk has room for the log's content; after a failed checkpoint, DuckDB would also refuse reads."""
        store = self._host.store
        return shutil.disk_usage(store.path.parent).free >= FREE_DISK_FLOOR_BYTES + store.wal_bytes

    async def _checkpoint(self) -> None:
        try:
            await self._host.store.checkpoint()
        except (duckdb.Error, Unavailable) as error:  # the log stays; nothing is lost
            _log.warning("checkpoint_failed", error=type(error).__name__)


def _tidy(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    tidy = getattr(projection, "tidy")  # noqa: B009  # optional, so not in the protocol
    with transaction(con):
        tidy(ProjectionTransaction(con, projection))


# Finds missing tables of a projection, for example tables dropped by hand; the projection is then folded again.


def has_lost_tables(projection: Projection | type[AdmissionView], existing: frozenset[str]) -> bool:
    """Whether tables that a projection had created are missing."""
    missing = sorted({table.name for table in projection.tables} - existing)
    if missing:
        _log.error("views.table_missing", projection=projection.name, tables=missing)
    return bool(missing)


@dataclass(frozen=True, slots=True)
class Lag:
    """A projection behind the group.

    Attributes:
        projection: Name of the projection.
        seq: Its checkpoint.
        error: The error that suspended it; None for a new version that is catching up.
        since: UTC time of the suspension; None for a new version.
    """

    projection: str
    seq: int
    error: str | None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class HostStatus:
    """State of the host for ``status`` and readiness.

    Attributes:
        checkpoint: Last sequence the group has committed.
        stopped: Why folding has stopped, None while the host folds.
        since: Since when it has stopped.
        laggards: Projections behind the group.
        parked: Projection (or ``decode``, ``admission``) → events parked since start.
        wal_bytes: Size of DuckDB's write-ahead log.
    """

    checkpoint: int
    stopped: str | None
    since: datetime | None
    laggards: tuple[Lag, ...]
    parked: dict[str, int] = field(default_factory=dict)
    wal_bytes: int = 0

    @property
    def ready(self) -> bool:
        """Whether the host can commit."""
        return self.stopped is None


@dataclass(frozen=True, slots=True)
class Ready:
    """A batch that is ready to be committed.

    Attributes:
        prepared: The decoded and the refused messages.
        batch: The events for the folds.
        reloads: The host's count of reloads when the preparation began.
    """

    prepared: Prepared
    batch: Batch
    reloads: int

    @property
    def last_seq(self) -> int:
        """Last sequence of the batch."""
        return self.batch.last_seq


class Host:
    """Folds messages into every projection; one per ``ViewStore``."""

    def __init__(
        self,
        store: ViewStore,
        projections: Sequence[Projection],
        *,
        park: Callable[[Parked], Awaitable[None]],
        housekeeping: bool = True,
        replays: bool = False,
    ) -> None:
        """Create a host that is not open yet.

        Args:
            store: The file; the host does not close it.
            projections: The projections, in the order in which they fold.
            park: Publishes a message to the dead letters and returns after the ack; may be called twice for the same
                parking.
            housekeeping: Whether to checkpoint and merge when idle.
            replays: Whether this host repeats the folds of another host; then its parkings are not published.
        """
        self.store = store
        self.projections = tuple(projections)
        self.identities = IdentityIndex()
        self.lagging = asyncio.Event()
        self.folder = BatchFolder(store, park, replays=replays)
        self._tidying = Tidying(self) if housekeeping else None
        self._lock = asyncio.Lock()
        self._cpu = ThreadPoolExecutor(1, thread_name_prefix="crew-views-decode")
        self._reloads = 0
        self._owed: set[int] = set()
        self._failures = 0
        self._retry_at = 0.0
        self._stopped: FoldingStopped | None = None
        self._since: datetime | None = None

    # opening and closing

    def outdated(self) -> tuple[str, ...]:
        """Names of the projections whose rows were folded by another version; ``open`` drops these rows. Blocking."""
        if "checkpoint" not in self.store.tables():
            return ()
        known = dict(self.store.rows("SELECT projection, version FROM checkpoint WHERE seq > 0"))
        return tuple(p.name for p in self.projections if known.get(p.name, p.version) != p.version)

    async def open(self, *, hold: str | None = None) -> None:
        """Create missing tables, read checkpoints and identities; a new version, or one without its tables, starts at 0.

        Args:
            hold: Why projections of a new version must not start at 0; they then keep the rows of the former version
                and are suspended until they are rebuilt. None if they may start at 0.

        Raises:
            ViewsDamaged: If the identities cannot be read.
        """
        outdated = await asyncio.to_thread(self.outdated) if hold is not None else ()
        await self.store.write(lambda con: self._create(con, frozenset(outdated)))
        if hold is not None:
            self.folder.hold(outdated, hold)
        await self.reload()

    def _create(self, con: duckdb.DuckDBPyConnection, outdated: frozenset[str]) -> None:
        existing_names = existing_tables(con)
        changed = PARKINGS_TABLE not in existing_names
        with transaction(con):
            con.execute(CHECKPOINT_DDL)
            con.execute(PARKINGS_DDL)
            known = read_checkpoints(con)
            if known.get(ADMISSION_PROJECTION, (None, 0))[0] != ADMISSION_VERSION or has_lost_tables(
                AdmissionView, existing_names
            ):
                for table in ADMISSION_TABLES:
                    con.execute(f"DROP TABLE IF EXISTS {table}")
                con.execute("UPDATE checkpoint SET version = -1, seq = 0")  # all projections depend on admission
                con.execute("DELETE FROM checkpoint WHERE projection = ?", [ADMISSION_PROJECTION])
                known = read_checkpoints(con)
                for table in ADMISSION_TABLES:
                    con.execute(ddl(table))
                con.execute("INSERT INTO checkpoint VALUES (?, ?, 0)", [ADMISSION_PROJECTION, ADMISSION_VERSION])
                changed = True
            created = []
            for projection in self.projections:
                as_known = projection.name in known and known[projection.name][0] == projection.version
                if as_known and not has_lost_tables(projection, existing_names):
                    continue
                created.append(projection)
                existing = {table.name for table in projection.tables} & existing_names
                if projection.name not in outdated and (existing or projection.name in known):
                    drop_tables(con, projection)
                    existing = set()
                create_tables(con, projection, existing)  # a held projection gets only its missing tables
            if created:
                add_checkpoints(con, created)
        forget(con)
        if changed or created:
            con.execute("CHECKPOINT")  # DDL must not stay in the log (facts/duckdb.md)

    async def reload(self) -> None:
        """Read checkpoints and identities from the file again, after opening or a swap."""
        reopened = self.store.reopened
        checkpoints = await self.store.write(read_checkpoints)
        await self.store.write(self.identities.load)
        await self.store.write(lambda con: self.folder.leniency.load(con, self.projections))
        self.folder.reopened = reopened
        self._reloads += 1  # also invalidates batches prepared meanwhile: the reloaded identities lack their entries
        names = {projection.name for projection in self.projections} | {ADMISSION_PROJECTION}
        self.store.announce({name: seq for name, (_, seq) in checkpoints.items() if name in names})
        if set(self.laggards) - self.folder.held:
            self.lagging.set()

    async def close(self) -> None:
        """Finish the current batch; the store stays open."""
        if self._tidying is not None:
            self._tidying.stop()
        async with self._lock:
            self._cpu.shutdown(wait=True)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Prevent folds, for code that must read or replace the views at one sequence."""
        async with self._lock:
            yield

    # state

    @property
    def checkpoint(self) -> int:
        """Last sequence that the group has committed; the live feed continues after it."""
        return self.store.view_seq(ADMISSION_PROJECTION)

    @property
    def members(self) -> list[Projection]:
        """Projections that fold the live feed."""
        at = self.checkpoint
        return [p for p in self.projections if p.name not in self.folder.suspended and self._checkpoint_of(p) >= at]

    @property
    def laggards(self) -> tuple[str, ...]:
        """Names of the projections behind the group; ``catch_up`` brings them back."""
        at = self.checkpoint
        return tuple(p.name for p in self.projections if p.name in self.folder.suspended or self._checkpoint_of(p) < at)

    def _checkpoint_of(self, projection: Projection) -> int:
        return self.store.view_seq(projection.name)

    def status(self) -> HostStatus:
        """The state of folding."""
        lags = tuple(self._lag(name) for name in self.laggards)
        stopped = None if self._stopped is None else self._stopped.message
        return HostStatus(self.checkpoint, stopped, self._since, lags, dict(self.folder.parked), self.store.wal_bytes)

    def _lag(self, name: str) -> Lag:
        seq, suspension = self.store.view_seq(name), self.folder.suspended.get(name)
        return Lag(name, seq, None) if suspension is None else Lag(name, seq, suspension.reason, suspension.since)

    # folding

    async def fold(self, messages: Sequence[RawMessage], *, last_seq: int | None = None) -> None:
        """Fold a batch, in parts of ``BATCH_BYTES``; returns after the last commit.

        Args:
            messages: Messages of JOURNAL; those at or below the checkpoint are skipped.
            last_seq: Last sequence that the batch covers, if the stream has a gap after the last message.

        Raises:
            FoldingStopped: For a fault of the environment. Do not ack; deliver the same messages again (the call itself
                waits for a backoff). Until then later messages are refused, so that no message is lost.
        """
        last = messages[-1] if messages else None
        for part in in_parts(messages, BATCH_BYTES):
            ends = not part or part[-1] is last
            async with self._lock:
                await self._back_off()
                ready = await self.prepare(part, self.checkpoint, last_seq if ends else None)
                if ready is not None:
                    await self._commit(ready)

    async def fold_ready(self, ready: Ready) -> None:
        """Fold a batch that was prepared while the one before it was committed; returns after the commit.

        If the views were replaced or reloaded after the preparation, the identities used for it are invalid, and the
        batch is prepared again.

        Raises:
            FoldingStopped: As ``fold``.
        """
        async with self._lock:
            await self._back_off()
            at = self.checkpoint
            if ready.reloads != self._reloads or ready.batch.first_seq != at + 1:
                again = await self.prepare(list(ready.prepared.messages.values()), at, ready.last_seq)
                if again is None:
                    return
                ready = again
            await self._commit(ready)

    async def prepare(
        self,
        messages: Sequence[RawMessage],
        after: int,
        last_seq: int | None,
        members: Sequence[Projection] | None = None,
    ) -> Ready | None:
        """Decode and admit messages and run the folds' precomputation, outside the event loop; None if no message is new.

        This may run ahead of commits, because the identities that it adds are in the stream, committed or not.

        Args:
            messages: Messages of JOURNAL.
            after: Messages at or below this sequence are skipped.
            last_seq: As in ``fold``.
            members: The projections that will fold it; the group if absent.
        """
        fresh = in_order(messages, after)
        last = max(last_seq or 0, fresh[-1].seq if fresh else 0)
        if last <= after:
            return None
        missing = {seq for seq in self._owed if after < seq <= last}.difference(m.seq for m in fresh)
        if missing:
            raise FoldingStopped(
                f"the message at {min(missing)} was not folded and must come first",
                hint="the feed delivers it again",
            )
        loop = asyncio.get_running_loop()
        reloads = self._reloads
        prepared, batch = await loop.run_in_executor(
            self._cpu, self._prepare, fresh, after, last, members or self.members
        )
        return Ready(prepared, batch, reloads)

    def _prepare(
        self, fresh: list[RawMessage], after: int, last: int, members: Sequence[Projection]
    ) -> tuple[Prepared, Batch]:
        prepared = prepare(fresh, self.identities, after + 1, last)
        batch = Batch(prepared.events, after + 1, last)
        for projection in members:
            warm = getattr(projection, "prepare", None)
            if warm is not None:
                with contextlib.suppress(Exception):  # the fold will raise the same error, which is handled there
                    warm(batch)
        return prepared, batch

    async def _commit(self, ready: Ready) -> None:
        """Commit a prepared batch; the caller holds the lock."""
        prepared, batch, members = ready.prepared, ready.batch, self.members
        task = asyncio.ensure_future(self.folder.fold_group(prepared, batch, members))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])  # the state in memory must follow the commit
            raise
        except FoldingStopped as error:
            self._stop(error, prepared)
            raise
        self._owed.difference_update(range(batch.first_seq, batch.last_seq + 1))
        self._clear_failures()
        if self.folder.suspended.keys() - self.folder.held:
            self.lagging.set()
        if self._tidying is not None:
            await self._tidying.after_commit()
        elif self.store.wal_bytes > self.store.wal_bound:
            await self.store.checkpoint()

    def _stop(self, error: FoldingStopped, prepared: Prepared) -> None:
        self._owed.update(prepared.messages)
        self._failures += 1
        delay = min(FOLD_BACKOFF_S * 2 ** (self._failures - 1), FOLD_BACKOFF_MAX_S)
        self._retry_at = asyncio.get_running_loop().time() + delay
        if self._stopped is None:
            self._since = datetime.now(UTC)
        self._stopped = error
        _log.error("folding_stopped", first_seq=prepared.first_seq, error=error.message, retry_in_s=delay)

    async def _back_off(self) -> None:
        if self._stopped is not None:
            await asyncio.sleep(max(0.0, self._retry_at - asyncio.get_running_loop().time()))
        await self._heed_reopening()

    async def heed_reopening(self) -> None:
        """Read the checkpoints again if the file was reopened, because a failed commit may be in the file after all."""
        async with self._lock:
            await self._heed_reopening()

    async def _heed_reopening(self) -> None:
        if self.store.reopened == self.folder.reopened:
            return
        self.store.invalidate()
        await self.reload()
        self._owed = {seq for seq in self._owed if seq > self.checkpoint}
        if not self._owed:
            self._clear_failures()

    def _clear_failures(self) -> None:
        self._failures, self._stopped, self._since = 0, None, None
