"""Bulk replay for rebuild, verify and catching up; reading, decoding and commits run in parallel.

Invariant: batches are committed one after the other in stream order; only reading and computing run ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Final

import structlog

from ...schemas.settings import FOLD_BACKOFF_MAX_S, FOLD_BACKOFF_S, REPLAY_BATCH_MESSAGES, REPLAY_LOOKAHEAD
from ..endings import end_task
from ..feed.messages import RawMessage
from ..projection import Projection
from .folding import beyond
from .host import Host

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
