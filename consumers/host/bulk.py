"""Bulk replay for rebuild, verify and catching up; reading, decoding and commits run in parallel.

Invariant: batches are committed one after the other in stream order; only reading and computing run ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Final

from ...schemas.settings import REPLAY_LOOKAHEAD
from ..endings import end_task
from ..feed.messages import RawMessage
from .host import Host

ReplaySource = Callable[[int, int], AsyncIterator[list[RawMessage]]]
"""``(first_seq, last_seq)``, inclusive → batches in stream order; gaps are allowed."""
COLLECT_AFTER: Final = 200_000
"""Objects made before the youngest are collected; the default of 700 costs a replay a quarter of its time (93 instead of
123 µs of CPU an entry, measured on busy cores)."""
Progress = Callable[[int, int], None]
"""``(done, total)`` in stream sequences."""


async def read_ahead(
    source: AsyncIterator[list[RawMessage]], depth: int = REPLAY_LOOKAHEAD
) -> AsyncGenerator[list[RawMessage], None]:
    """The batches of ``source``, up to ``depth`` of them read before they are asked for; closes ``source``."""
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
            await source.aclose()  # its consumer at the broker goes now, not when garbage is collected


class _Calm:
    """How many bulk replays are at work, and how often garbage was collected before the first of them."""

    at_work = 0
    before = gc.get_threshold()


@contextlib.contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage seldom while bulk replays make hundreds of thousands of short-lived events, none in cycles."""
    if not _Calm.at_work:
        _Calm.before = gc.get_threshold()
        gc.set_threshold(COLLECT_AFTER, *_Calm.before[1:])
    _Calm.at_work += 1
    try:
        yield
    finally:
        _Calm.at_work -= 1
        if not _Calm.at_work:  # a rebuild beside a feed that is far behind: the last one restores
            gc.set_threshold(*_Calm.before)


async def fold_range(host: Host, source: ReplaySource, last_seq: int, progress: Progress | None = None) -> None:
    """Bring a host from its checkpoint to ``last_seq``: while one batch is committed the next is decoded.

    No other caller may fold into ``host`` meanwhile; pausing it is allowed between two commits.

    Raises:
        FoldingStopped: For the environment's fault; the checkpoint says how far it came.
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
