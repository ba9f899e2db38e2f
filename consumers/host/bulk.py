"""Bulk replay for rebuild, verify and catching up; reading, decoding and commits run in parallel.

Invariant: batches are committed one after the other in stream order; only reading and computing run ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from ...schemas.core.errors import JournalDamaged
from ...schemas.core.ids import identity_key
from ...schemas.core.sequence_set import Range, normalised, sequences_text, without
from ...schemas.entries.events import EXPLANATIONS, ErasureScoped, LossAccepted
from ...schemas.entries.tables import ENTRIES
from ...schemas.settings import FOLD_BACKOFF_MAX_S, FOLD_BACKOFF_S, REPLAY_BATCH_MESSAGES, REPLAY_LOOKAHEAD
from ..endings import end_task
from ..feed.messages import RawMessage
from ..projection import Projection
from .admission import ADMISSION_TABLE
from .folding import beyond
from .host import Host
from .store import ViewStore

ReplaySource = Callable[[int, int], AsyncIterator[list[RawMessage]]]
"""Takes ``(first_seq, last_seq)``, inclusive, and yields batches in stream order; sequences may have gaps."""
COLLECT_AFTER: Final = 200_000
"""Number of new objects that trigger a garbage collection. Python's default of 700 costs a quarter of a replay's time
(123 instead of 93 µs of CPU per entry, measured on busy cores).
"""
Progress = Callable[[int, int], None]
"""``(done, total)`` in stream sequences."""


async def read_ahead(
    source: AsyncIterator[list[RawMessage]], depth: int = REPLAY_LOOKAHEAD
) -> AsyncGenerator[list[RawMessage], None]:
    """The batches of ``source``, of which up to ``depth`` are read ahead; closes ``source``."""
    queue: asyncio.Queue[list[RawMessage] | BaseException | None] = asyncio.Queue(depth)

    async def fill() -> None:
        try:
            async for batch in source:
                await queue.put(batch)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    task = asyncio.ensure_future(fill())
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        await end_task(task)
        if isinstance(source, AsyncGenerator):
            await source.aclose()  # removes its consumer at the broker now, not at garbage collection


class _Calm:
    """The number of running bulk replays, and the collector's threshold before the first of them."""

    at_work = 0
    before = gc.get_threshold()


@contextlib.contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage rarely while bulk replays create hundreds of thousands of short-lived events without cycles."""
    if not _Calm.at_work:
        _Calm.before = gc.get_threshold()
        gc.set_threshold(COLLECT_AFTER, *_Calm.before[1:])
    _Calm.at_work += 1
    try:
        yield
    finally:
        _Calm.at_work -= 1
        if not _Calm.at_work:  # a rebuild and a feed may overlap; the last of them restores
            gc.set_threshold(*_Calm.before)


async def fold_range(host: Host, source: ReplaySource, last_seq: int, progress: Progress | None = None) -> None:
    """Fold from a host's checkpoint to ``last_seq``; while one batch is committed, the next is decoded.

    No other caller may fold into ``host`` meanwhile; pausing it is allowed between two commits.

    Raises:
        FoldingStopped: For a fault of the environment; the checkpoint shows how far the host came.
    """
    start = host.checkpoint
    if last_seq <= start:
        return
    with calm_collector():
        await _fold_range(host, source, start, last_seq, progress)
    if progress is not None:
        progress(last_seq - start, last_seq - start)


async def _fold_range(host: Host, source: ReplaySource, start: int, last_seq: int, progress: Progress | None) -> None:
    async with contextlib.aclosing(read_ahead(source(start + 1, last_seq))) as batches:
        after = start
        committing: asyncio.Task[None] | None = None
        try:
            async for batch in batches:
                ready = await host.prepare([m for m in batch if m.seq <= last_seq], after, None)
                if ready is None:
                    continue
                if committing is not None:
                    await committing
                    if progress is not None:
                        progress(after - start, last_seq - start)
                after = ready.last_seq
                committing = asyncio.ensure_future(host.fold_ready(ready))
        finally:
            if committing is not None:
                await committing
        if (rest := await host.prepare([], after, last_seq)) is not None:  # the stream ends in a gap
            await host.fold_ready(rest)


# Brings projections that are behind back into the group while the live feed continues.


_log = structlog.get_logger(__name__)


async def catch_up(host: Host, source: ReplaySource, progress: Progress | None = None) -> tuple[str, ...]:
    """Replay for every projection that is behind until it is back in the group.

    Args:
        host: The live host; its feed continues.
        source: The stream.
        progress: Called with the progress of the replay.

    Returns:
        Names of the projections that failed again and stay behind; ``Host.status`` has the reason.

    Raises:
        FoldingStopped: For a fault of the environment.
    """
    await host.heed_reopening()
    names = tuple(name for name in host.laggards if name not in host.folder.held)
    if not names:
        host.lagging.clear()
        return ()
    host.folder.try_again(names)
    behind = [p for p in host.projections if p.name in names]
    async with contextlib.AsyncExitStack() as rejoining:
        locked = False
        while not locked:
            if host.checkpoint - _lowest(host, behind) <= REPLAY_BATCH_MESSAGES:
                await rejoining.enter_async_context(host.paused())
                locked = True
            await _replay(host, behind, source, host.checkpoint, progress)
            behind = _going_on(host, behind)
        if behind:
            host.folder.rejoin(p.name for p in behind)
            host.store.invalidate()
            _log.info("caught_up", projections=[p.name for p in behind], seq=host.checkpoint)
    failed = tuple(name for name in names if host.folder.failed(name))
    if not failed:
        host.lagging.clear()
    return failed


async def keep_up(host: Host, source: ReplaySource) -> None:
    """Catch up whenever a projection has fallen behind; runs until cancelled, backs off while it fails."""
    delay = FOLD_BACKOFF_S
    while True:
        await host.lagging.wait()
        try:
            failed = await catch_up(host, source)
        except Exception as error:  # status shows the projections that are behind; the next round retries
            _log.warning("catch_up_failed", error=type(error).__name__)
        else:
            if not failed:
                delay = FOLD_BACKOFF_S
                continue
        await asyncio.sleep(delay)
        delay = min(2 * delay, FOLD_BACKOFF_MAX_S)


def _lowest(host: Host, projections: Sequence[Projection]) -> int:
    return min((host.store.view_seq(p.name) for p in projections), default=host.checkpoint)


def _going_on(host: Host, behind: Sequence[Projection]) -> list[Projection]:
    return [p for p in behind if not host.folder.failed(p.name)]


async def _replay(
    host: Host, behind: Sequence[Projection], source: ReplaySource, last_seq: int, progress: Progress | None
) -> None:
    start = after = _lowest(host, behind)
    if last_seq <= start:
        return
    async with contextlib.aclosing(read_ahead(source(start + 1, last_seq))) as batches:
        async for messages in batches:
            after = await _fold(host, behind, [m for m in messages if m.seq <= last_seq], after, None)
            if not (behind := _going_on(host, behind)):
                return  # otherwise the rest of the journal would be read for no projection, at each attempt
            if progress is not None:
                progress(after - start, last_seq - start)
    await _fold(host, behind, [], after, last_seq)  # the stream may end in a gap


async def _fold(
    host: Host, behind: Sequence[Projection], messages: Sequence[RawMessage], after: int, last_seq: int | None
) -> int:
    """Fold a batch into each projection that is behind; messages that ``decode`` or ``admission`` refuse were parked."""
    ready = await host.prepare(messages, after, last_seq, behind)
    if ready is None:
        return after
    for projection in behind:
        rest = beyond(ready.batch, host.store.view_seq(projection.name))
        await host.folder.fold_alone(projection, rest, ready.prepared.messages, quiet=True)
    return ready.last_seq


# Finds the sequences missing from JOURNAL, the events that explain them, and the lost entries that the views still
# have.
#
# Invariant: only a later ``erasure.scoped`` or ``journal.loss_accepted`` explains a missing sequence. Every other
# sequence that a read does not return is damage. nats-server silently skips a message with a wrong checksum and still
# counts it (measured with 2.15.1), so every read checks which sequences it received.


EXPLAINING: Final = (
    f"SELECT seq, workspace_id, entry_type, payload FROM {ENTRIES} "
    "WHERE {rows} AND control AND entry_type IN (?, ?) ORDER BY seq"
)
"""Query for erasures and accepted losses among the rows that fulfil a condition."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why sequences may be missing.

    Attributes:
        ranges: Sequences that were erased or whose loss was accepted.
        erased: Sequences that were erased.
        erased_ids: (workspace, entry id) of erased entries.
    """

    ranges: list[Range]
    erased: list[Range]
    erased_ids: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lack:
    """Data that is missing from the stream.

    Attributes:
        sequences: Missing sequences without an explanation.
        known: Sequences of entries that the views know and the stream does not hold.
        ids: (workspace, id) of these entries, in the same order.
    """

    sequences: list[Range]
    known: list[int]
    ids: list[tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.sequences or self.known)


def explained(store: ViewStore) -> Explained:
    """The erasures and accepted losses in the views; blocking."""
    if ENTRIES.name not in store.tables():
        return Explained([], [], frozenset())
    return explained_by(store.rows(EXPLAINING.format(rows="TRUE"), list(EXPLANATIONS)))


def explained_by(rows: Iterable[tuple[int, str, str, str]]) -> Explained:
    """The sequences and ids that rows of ``EXPLAINING`` explain."""
    lost: list[Range] = []
    erased: list[Range] = []
    ids: set[tuple[str, str]] = set()
    for seq, workspace, entry_type, payload in rows:
        if entry_type == ErasureScoped.ENTRY_TYPE:
            scope = ErasureScoped.model_validate_json(payload).scope
            ids.update((workspace, entry_id) for entry_id in scope.ids)
            erased += _before(scope.ranges, seq)
        else:
            lost += _before(LossAccepted.model_validate_json(payload).lost.ranges, seq)
    erased = normalised(erased)
    return Explained(normalised([*lost, *erased]), erased, frozenset(ids))


def _before(ranges: Sequence[Range], seq: int) -> list[Range]:
    return [(first, min(last, seq - 1)) for first, last in ranges if first < seq]


class ReadAccount:
    """Records the sequences that a read of the stream did not return."""

    def __init__(self) -> None:
        self._missing: list[Range] = []

    @property
    def missing(self) -> list[Range]:
        """The missing sequences as ranges."""
        self._missing = normalised(self._missing)
        return self._missing

    def account(self, expected: int, messages: Sequence[RawMessage]) -> int:
        """Record the gaps between ``expected`` and the ascending messages; returns the next expected sequence."""
        if messages and messages[-1].seq - expected + 1 == len(messages):
            return messages[-1].seq + 1
        for message in messages:
            if message.seq > expected:
                self._missing.append((expected, message.seq - 1))
            expected = max(expected, message.seq + 1)
        return expected

    def end(self, expected: int, last_seq: int) -> None:
        """Record that a read ended before ``last_seq``."""
        if expected <= last_seq:
            self._missing.append((expected, last_seq))

    def add(self, ranges: Sequence[Range]) -> None:
        """Record sequences that another read did not return."""
        self._missing += ranges

    def counted(self, source: ReplaySource) -> ReplaySource:
        """The same source, whose gaps up to the last requested sequence are recorded."""

        async def read(first_seq: int, last_seq: int) -> AsyncGenerator[list[RawMessage], None]:
            expected = first_seq
            async with _closing(source(first_seq, last_seq)) as batches:
                async for batch in batches:
                    expected = self.account(expected, batch)
                    yield batch
            self.end(expected, last_seq)

        return read


@contextlib.asynccontextmanager
async def _closing(source: AsyncIterator[list[RawMessage]]) -> AsyncIterator[AsyncIterator[list[RawMessage]]]:
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def read_through(source: ReplaySource, last_seq: int) -> list[Range]:
    """Read the stream to ``last_seq`` without folding; returns the missing sequences."""
    account = ReadAccount()
    async for _ in account.counted(source)(1, last_seq):
        pass
    return account.missing


def lack_of(live: ViewStore, fresh: ViewStore, missing: Sequence[Range], explains: Explained) -> Lack:
    """The entries and sequences that are missing from the stream; blocking.

    Args:
        live: The live views, which may hold entries that the stream lost.
        fresh: Views with the identities that the stream holds.
        missing: Sequences that were not delivered when the stream was read.
        explains: The erasures and accepted losses that explain missing sequences.
    """
    identities = fresh.columns(f"SELECT k0, k1 FROM {ADMISSION_TABLE}")
    rows = [
        (seq, workspace, entry_id)
        for seq, workspace, entry_id in lost_entries(live, identities, "seq, workspace_id, id", explains)
    ]
    return Lack(
        without(normalised(missing), explains.ranges), [row[0] for row in rows], [(row[1], row[2]) for row in rows]
    )


def lost_entries(store: ViewStore, identities: Any, columns: str, explains: Explained) -> list[tuple[Any, ...]]:
    """The entries, except erased ones, that are in the views and not in the stream, in stream order; blocking.

    Args:
        store: The views.
        identities: ``k0, k1`` of the identities that the stream holds, as a ``pyarrow.Table``.
        columns: The columns to return; begins with ``seq, workspace_id, id``.
        explains: The erasures.
    """
    if ENTRIES.name not in store.tables():
        return []
    with store.snapshot() as con:
        con.register("held_by_stream", identities)  # visible only to this cursor, which is closed after the block
        rows = con.execute(
            f"SELECT {columns} FROM {ENTRIES} SEMI JOIN "
            f"(SELECT seq FROM {ADMISSION_TABLE} ANTI JOIN held_by_stream USING (k0, k1)) AS lost USING (seq) ORDER BY seq"
        ).fetchall()
        held: set[bytes] = set()
        for start in range(0, len(rows), _AT_ONCE):  # rows whose identity alone was changed in the views are not lost
            keys = [identity_key(row[1], row[2]) for row in rows[start : start + _AT_ONCE]]
            named = ", ".join(
                f"({int.from_bytes(key[:8], 'little')}, {int.from_bytes(key[8:], 'little')})" for key in keys
            )
            found = con.execute(f"SELECT k0, k1 FROM held_by_stream WHERE (k0, k1) IN ({named})").fetchall()
            held.update(b"".join(half.to_bytes(8, "little") for half in key) for key in found)
    kept = [row for row in rows if identity_key(row[1], row[2]) not in held]
    return without_erased(kept, explains)


def without_erased(rows: Iterable[tuple[Any, ...]], explains: Explained) -> list[tuple[Any, ...]]:
    """The rows without those of erased entries; rows begin with ``seq, workspace_id, id`` and are ordered by ``seq``."""
    erased = _Member(explains.erased)
    return [row for row in rows if row[0] not in erased and (row[1], row[2]) not in explains.erased_ids]


_AT_ONCE: Final = 1_000
"""Identities that one query looks for."""


class _Member:
    """Tests ascending numbers for membership in ascending ranges."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._at = 0

    def __contains__(self, seq: int) -> bool:
        while self._at < len(self._ranges) and self._ranges[self._at][1] < seq:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= seq


class RebuildRefused(JournalDamaged):
    """The views are not replaced, because the stream holds less than they do."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(
            f"the journal has lost something: {lack_text(lack)}; all views are as they were", hint=self.HINT
        )
        self.lack = lack


def lack_text(lack: Lack) -> str:
    """The missing data in words."""
    parts = []
    if lack.sequences:
        parts.append(f"{sequences_text(lack.sequences)} missing from the stream without an explanation")
    parts.append(f"{len(lack.known):,} entries of the views are not in it")
    return ", ".join(parts)
