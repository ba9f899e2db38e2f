"""The one DuckDB file of a node: one writer thread, one cursor per reader thread, and a gate for swaps.

Invariant: only the writer thread writes; a commit is announced on the event loop, in commit order, after it is durable;
a swap replaces the whole file while no reader is active, so no reader sees parts of both files. This module alone
enforces DuckDB's rules: one process per file, one cursor per thread, fetch before the next execute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import structlog

from ...schemas.core.errors import DataDirBusy, Unavailable, ViewsBehind, ViewsDamaged
from ...schemas.core.ports import CommittedBatch
from ...schemas.settings import WAL_BOUND_BYTES
from .faults import WAL_SUFFIX, as_damage, beside, confine, make_private, telling_damage, text_of
from .transaction import arrow_table, existing_tables

# A shared/exclusive lock: readers share it, a swap holds it exclusively.


WAIT_S: Final = 30.0
"""Seconds that a reader waits for a swap, and a swap for readers; a swap takes far less than 1 s."""


class ReadGate:
    """Counts readers. A thread that reads must not start to read again, because a waiting swap would block it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._closed = False
        self._shut = False

    @property
    def is_shut(self) -> bool:
        """Whether it was closed permanently."""
        return self._shut

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the gate as a reader.

        Raises:
            Unavailable: If the store is closed, or a swap takes too long.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: not self._closed or self._shut, WAIT_S) or self._shut:
                raise Unavailable("the views are closed", hint="try again in a moment")
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                if not self._readers:
                    self._condition.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait until the last reader has left, and hold the gate exclusively.

        Raises:
            Unavailable: If a reader does not leave in time.
        """
        with self._condition:
            self._closed = True
            if not self._condition.wait_for(lambda: not self._readers, WAIT_S):
                self._closed = False
                self._condition.notify_all()
                raise Unavailable("a reader still uses the views", hint="try again")
        try:
            yield
        finally:
            with self._condition:
                self._closed = False
                self._condition.notify_all()

    def shut(self) -> None:
        """Wait for current readers, then refuse new ones."""
        with self._condition:
            self._shut = True
            self._condition.wait_for(lambda: not self._readers, WAIT_S)
            self._condition.notify_all()


# Reopens the views after a fatal error of DuckDB, so that a full disk does not require a restart.


_GIVEN_UP: Final = (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException)
"""After the first two errors DuckDB refuses the file; the third means that the file could not be reopened."""
_ORIGINAL: Final = re.compile(r'Original error: "(.*)"', re.DOTALL)
_HINT: Final = "free disk space or memory if it lasts: it is tried again by itself; see crew-journal status"

_log = structlog.get_logger(__name__)


class ViewsUnusable(Unavailable):
    """DuckDB lacks disk space or memory to use the views, or their file is about to be reopened."""

    title = "The views cannot be used"


class Reopening:
    """Detects a fatal error of DuckDB, keeps its reason, and reopens the file.

    Args:
        reopen: Closes and opens the file while readers are locked out; called on the writer thread.
        submit: Runs a function on the writer thread, after earlier work.
    """

    def __init__(self, reopen: Callable[[], None], submit: Callable[[Callable[[], None]], Future[None]]) -> None:
        self._reopen = reopen
        self._submit = submit
        self._asked_at = -1
        self.count = 0
        """How often the file was reopened; state that was read under another count may be out of date."""
        self.trouble: str | None = None
        """Why the file cannot be used at the moment, None if it can."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Wrap every use of the file, inside the gate.

        Raises:
            ViewsUnusable: In place of DuckDB's errors about disk, memory or a refused file; the file is reopened soon.
        """
        count = self.count
        try:
            yield
        except (duckdb.OperationalError, duckdb.FatalException, duckdb.InternalException) as error:
            reason = _reason_of(error)
            if isinstance(error, _GIVEN_UP):
                self.trouble = reason = self.trouble or reason
                self._ask(count)
            raise ViewsUnusable(f"the views cannot be used: {reason}", hint=_HINT) from error

    def _ask(self, count: int) -> None:
        if count > self._asked_at:
            self._asked_at = count
            with contextlib.suppress(RuntimeError):  # the store is being closed
                self._submit(lambda: self._mend(count))

    def _mend(self, count: int) -> None:
        if count != self.count:
            return  # two requests at the same time
        _log.error("views.given_up", reason=self.trouble)
        try:
            self._reopen()
        except Exception as error:  # the next read or write requests it again
            self._asked_at = count - 1
            _log.error("views.not_reopened", error=str(error))
        else:
            self.count += 1
            self.trouble = None
            _log.warning("views.reopened", times=self.count)


def _reason_of(error: duckdb.Error) -> str:
    """DuckDB's message; if DuckDB refuses the file after a fatal error, the message of that error."""
    original = _ORIGINAL.search(str(error))
    return text_of(error) if original is None else text_of(duckdb.Error(original[1]))


# Returns freed memory that DuckDB, Arrow and the C library keep to the system.


_SET_LIMIT: Final = "SET memory_limit = '{limit}'"
"""Setting the memory limit, even to the same value, makes DuckDB purge its allocator and trim the C library's. DuckDB's
settings for this purpose (``allocator_flush_threshold``) apply only to DuckDB's own threads, and this process has no
such threads.
"""


def share_one_heap() -> None:
    """Let Arrow allocate from the C library in the whole process, so that freed memory is shared and can be returned.

    Rebuilding costs the same CPU as with Arrow's mimalloc: 48.4 and 49.0 µs a message, the mean of two runs each.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def give_back(con: duckdb.DuckDBPyConnection, memory_limit: str) -> None:
    """Return freed memory to the system; 5 to 20 ms after 100,000 entries were folded.

    Args:
        con: The writer's connection, between transactions.
        memory_limit: DuckDB's current limit, for example ``512MB``; it does not change.
    """
    try:
        con.execute(_SET_LIMIT.format(limit=memory_limit))
    except duckdb.OutOfMemoryException:  # more memory than the limit is pinned, so nothing can be returned
        _log.debug("duckdb_memory_kept")
    pa.default_memory_pool().release_unused()


T = TypeVar("T")

CHECKPOINT_THRESHOLD: Final = "1TB"
"""Switches automatic checkpoints off: at 16 MB they delay a commit by 70 to 150 ms. The host makes a checkpoint when
idle, or when the log exceeds ``ViewStore.wal_bound``.
"""

UNUSED_COMPRESSION: Final = "zstd"
"""Compression that DuckDB 2.0 uses for long strings. To read one string it decompresses 2,048: with 1,380 payloads of
240 KB, a single row took 2.4 s (0.03 s without) and most queries ran out of memory.
"""
WAL_SHARE: Final = 4
"""Maximum share (1/n) of DuckDB's memory for rows that are only in the log: with a limit of 64 MB, 65 MB of such rows
made a verify fail.
"""


class StreamStamp(NamedTuple):
    """The stream of a view file.

    Attributes:
        made: Creation time in the broker's format; distinguishes the stream from every other.
        journal: Hash of the key of its journal, which survives the loss of the stream; None if unknown.
    """

    made: str
    journal: str | None = None


class ViewStore:
    """Implements ``schemas.core.ports.ViewReader``, and ``write`` for the host and operator tasks."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """Use ``open`` instead."""
        self._path = path
        self._config = dict(config)
        self.stamp: StreamStamp | None = None
        """Of the folded stream; None if unknown."""
        self._gate = ReadGate()
        self._cursors: dict[int, tuple[threading.Thread, duckdb.DuckDBPyConnection]] = {}
        self._cursors_lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="crew-views-writer")
        self._generation = 0
        self._damage: ViewsDamaged | None = None
        self._checkpoints: dict[str, int] = {}
        self._listeners: list[Callable[[CommittedBatch], None]] = []
        self._waiters: dict[asyncio.Event, int] = {}
        self.on_wait: Callable[[], None] = lambda: None
        """Called when a task begins to wait for a sequence."""
        self._reopening = Reopening(self._reopen, self._executor.submit)
        self._connect()

    @classmethod
    def open(cls, path: Path, *, memory_mb: int, threads: int = 1) -> ViewStore:
        """Open or create the file; the host creates missing tables.

        Args:
            path: The DuckDB file; its directory is created.
            memory_mb: DuckDB's memory limit, MiB.
            threads: DuckDB's threads; 1 is fastest with concurrent readers (facts/duckdb.md).

        Raises:
            DataDirBusy: If another process has it open.
            ViewsDamaged: If the file is broken.
            Unavailable: If it cannot be opened for another reason.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        make_private(path)
        config = {
            "threads": threads,
            "memory_limit": f"{memory_mb}MB",
            "checkpoint_threshold": CHECKPOINT_THRESHOLD,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
        }
        return cls(path, config)

    def _connect(self) -> None:
        try:
            self._root = duckdb.connect(str(self._path), config=self._config)
            self._root.execute(f"SET disabled_compression_methods = '{UNUSED_COMPRESSION}'")  # has no effect in config
            confine(self._root, self._path)
        except duckdb.Error as error:
            if (damage := as_damage(error)) is not None:
                raise damage from error
            if "Could not set lock" in str(error):
                raise DataDirBusy(
                    f"{self._path.name} is open in another process",
                    hint="stop the other crew-journal, or give this one another --data-dir",
                ) from error
            raise Unavailable(f"cannot open the views: {text_of(error)}", hint=_hint(error)) from error
        self._writer = self._root.cursor()

    @property
    def path(self) -> Path:
        """The DuckDB file."""
        return self._path

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log, bytes."""
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def wal_bound(self) -> int:
        """Size in bytes at which the host writes the log into the file; the log's content also takes DuckDB's memory."""
        memory_bytes = int(self._config["memory_limit"].removesuffix("MB")) * 1_000_000
        return min(WAL_BOUND_BYTES, memory_bytes // WAL_SHARE)

    @property
    def _wal(self) -> Path:
        return beside(self._path, WAL_SUFFIX)

    @property
    def damage(self) -> str | None:
        """The damage found in the file since it was opened or replaced, None if no damage was found."""
        return None if self._damage is None else self._damage.message

    @property
    def trouble(self) -> str | None:
        """Why DuckDB cannot use the file at the moment, None if it can."""
        return self._reopening.trouble

    @property
    def reopened(self) -> int:
        """How often the file was reopened after a fatal error of DuckDB; after each time, checkpoints must be read again."""
        return self._reopening.count

    def refuse_damage(self) -> None:
        """Return only if no reader or writer has found damage.

        Raises:
            ViewsDamaged: If damage was found.
        """
        if self._damage is not None:
            raise _bare(self._damage)

    # reading

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._gate.reading(), self._watched():
            yield self._cursor()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Remember damage, for readiness."""
        try:
            with self._reopening.watching(), telling_damage():
                yield
        except ViewsDamaged as damage:
            if self._damage is None:
                self._damage = _bare(damage)
                _log.error("views.damaged", reason=damage.message)
            raise

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        thread = threading.current_thread()
        known = self._cursors.get(thread.ident or 0)
        if known is not None and known[0] is thread:
            return known[1]
        with self._cursors_lock:
            for ident in [i for i, (owner, _) in self._cursors.items() if not owner.is_alive()]:
                self._cursors.pop(ident)[1].close()
            cursor = self._root.cursor()
            self._cursors[thread.ident or 0] = (thread, cursor)
        return cursor

    def rows(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a parametrised query; blocking, on the calling thread's own cursor."""
        with self._reading() as cursor:
            return cursor.execute(sql, params).fetchall()

    def tables(self) -> frozenset[str]:
        """Names of the tables that the file has; blocking."""
        with self._reading() as cursor:
            return existing_tables(cursor)

    def columns(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The result as a ``pyarrow.Table``; blocking, on the calling thread's own cursor."""
        with self._reading() as cursor:
            return arrow_table(cursor, sql, params)

    @contextmanager
    def snapshot(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One consistent state for several queries; delays a swap, so keep it short."""
        with self._gate.reading(), self._watched():
            cursor = self._root.cursor()
            try:
                cursor.execute("BEGIN TRANSACTION")
                yield cursor
                cursor.execute("ROLLBACK")
            finally:
                cursor.close()

    # writing

    async def write(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run ``work`` on the writer thread with the writer's connection, after all earlier work.

        The work always runs to its end: a cancelled caller gets the cancellation only afterwards.
        """
        task = asyncio.get_running_loop().run_in_executor(self._executor, self._run, work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            task.exception()  # the cancelled caller does not read it, and asyncio logs an unread exception
            raise

    def write_blocking(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """``write`` for callers without an event loop; not from the writer thread."""
        return self._executor.submit(self._run, work).result()

    def _run(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        with self._watched():
            return work(self._writer)

    async def checkpoint(self) -> None:
        """Write the write-ahead log into the file; readers continue, writers wait."""
        await self.write(lambda con: con.execute("CHECKPOINT"))

    async def give_back(self) -> None:
        """Return freed memory to the system, between two commits; for an idle node."""
        await self.write(lambda con: give_back(con, self._config["memory_limit"]))

    # commits

    @property
    def generation(self) -> int:
        """Counts swaps and rebuilt views; a cache of another generation is invalid."""
        return self._generation

    def invalidate(self) -> None:
        """Invalidate every cache, because views were replaced, not extended."""
        self._generation += 1

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """Projection → last committed sequence."""
        return dict(self._checkpoints)

    def view_seq(self, *projections: str) -> int:
        """The lowest committed checkpoint of the named projections (of all, if none is named)."""
        known = self._checkpoints
        if len(projections) == 1:  # called a hundred times per commit
            return known.get(projections[0], 0)
        if not projections:
            return min(known.values(), default=0)
        return min(known.get(name, 0) for name in projections)

    def is_awaited(self, first_seq: int, last_seq: int) -> bool:
        """Whether a task that is not patient waits for one of these sequences."""
        return any(first_seq <= awaited <= last_seq for awaited in self._waiters.values())

    async def wait_for(self, seq: int, timeout_s: float, *projections: str, patient: bool = False) -> int:
        """Wait until the named projections have committed ``seq``; returns the lowest checkpoint reached.

        Raises:
            ViewsBehind: After ``timeout_s`` seconds.
        """
        if (reached := self.view_seq(*projections)) >= seq:
            return reached
        moved = asyncio.Event()
        self._waiters[moved] = 0 if patient else seq
        if not patient:
            self.on_wait()
        try:
            async with asyncio.timeout(timeout_s):
                while (reached := self.view_seq(*projections)) < seq:
                    await moved.wait()
                    moved.clear()
            return reached
        except TimeoutError:
            raise ViewsBehind(
                f"the views are at {self.view_seq(*projections)}, {seq} was asked for",
                hint="try again, or ask without min_seq",
            ) from None
        finally:
            del self._waiters[moved]

    def subscribe(self, listener: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop after every commit, in order; returns a function that unsubscribes."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def announce(self, checkpoints: Mapping[str, int], committed: CommittedBatch | None = None) -> None:
        """After a commit, on the event loop: move the checkpoints, extend the caches, wake waiting tasks.

        If a listener fails, every cache is invalidated, so that the listener's cache is loaded again.
        """
        self._checkpoints.update(checkpoints)
        if committed is not None:
            for listener in tuple(self._listeners):
                try:
                    listener(committed)
                except Exception:
                    _log.exception("listener_failed", first_seq=committed.first_seq, last_seq=committed.last_seq)
                    self.invalidate()
        for moved in tuple(self._waiters):
            moved.set()

    # swapping

    async def swap(self, new_file: Path, *, keep_as: str | None = None) -> None:
        """Replace the file by ``new_file`` (complete, checkpointed, closed, same directory); readers wait meanwhile.

        Args:
            new_file: The new views.
            keep_as: Name under which the old file is kept beside it; None to delete it.

        Raises:
            Unavailable: If a write-ahead log remains beside either file; then nothing was replaced. The log of a
                damaged file is ignored.
        """
        await self.write(lambda _: self._swap(new_file, keep_as))
        self._generation += 1

    def _swap(self, new_file: Path, keep_as: str | None) -> None:
        if new_file.with_name(new_file.name + ".wal").exists():
            raise Unavailable("the new views are not checkpointed", hint="close them first")
        try:
            if self._damage is None:  # a damaged file needs no checkpoint and may not be open
                with telling_damage():
                    self._writer.execute("CHECKPOINT")  # before readers wait; nothing is written until the swap
        except ViewsDamaged as damage:
            self._damage = _bare(damage)
        _sync(new_file)
        with self._gate.closed():
            self._disconnect()
            try:
                if self.wal_bytes and self._damage is None:  # the log would be replayed into the other file
                    raise Unavailable("the live views keep a write-ahead log", hint="restart, then rebuild again")
                if keep_as is not None:
                    kept = self._path.with_name(keep_as)
                    kept.hardlink_to(self._path)
                    if self._wal.exists():
                        self._wal.replace(kept.with_name(kept.name + ".wal"))
                self._wal.unlink(missing_ok=True)
                new_file.replace(self._path)
                _sync(self._path.parent)
                self._damage = None
            finally:
                self._connect()

    def _reopen(self) -> None:
        with self._gate.closed(), self._watched():
            self._disconnect()
            self._connect()

    def _disconnect(self) -> None:
        with self._cursors_lock:
            for _, cursor in self._cursors.values():
                cursor.close()
            self._cursors.clear()
        self._writer.close()
        self._root.close()

    def close(self) -> None:
        """Finish the writer's work, checkpoint, close; idempotent."""
        if self._gate.is_shut:
            return
        try:
            self.write_blocking(lambda con: con.execute("CHECKPOINT"))
        except (duckdb.Error, Unavailable) as error:  # the log is replayed at the next start
            _log.warning("checkpoint_at_close_failed", error=type(error).__name__)
        self._executor.shutdown(wait=True)
        self._gate.shut()
        self._disconnect()


def _bare(damage: ViewsDamaged) -> ViewsDamaged:
    """The same error without its traceback, whose frames hold rows and cursors."""
    return ViewsDamaged(damage.message, hint=damage.hint)


def _hint(error: duckdb.Error) -> str:
    if "newer version of DuckDB" in str(error):
        return "install the duckdb version that wrote it, or move the file away: the views are then rebuilt from the journal"
    return "make sure that the file is readable and writable and the disk has room; see `crew-journal doctor`"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
