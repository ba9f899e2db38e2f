"""Brings projections that are behind the group back into it, beside the live feed.

Invariant: a laggard sees every event once, in order: it replays alone up to the group's checkpoint and rejoins under the
host's lock, where that checkpoint does not move. Its caches are then cleared.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from ...schemas.settings import FOLD_BACKOFF_MAX_S, FOLD_BACKOFF_S, REPLAY_BATCH_MESSAGES
from ..feed.messages import RawMessage
from ..projection import Projection
from .bulk import Progress, ReplaySource, read_ahead
from .folding import beyond
from .host import Host

_log = structlog.get_logger(__name__)


async def catch_up(host: Host, source: ReplaySource, progress: Progress | None = None) -> tuple[str, ...]:
    """Replay for every laggard until it is back in the group.

    Args:
        host: The live host; its feed goes on.
        source: The stream.
        progress: Called with how far the replay is.

    Returns:
        Names of those that failed again and stay behind; ``Host.status`` says why.

    Raises:
        FoldingStopped: For the environment's fault.
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
        except Exception as error:  # status shows who is behind; the next round tries again
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
                return  # the rest, the whole journal perhaps, would be read for no projection, and again at each attempt
            if progress is not None:
                progress(after - start, last_seq - start)
    await _fold(host, behind, [], after, last_seq)  # the stream may end in a gap


async def _fold(
    host: Host, behind: Sequence[Projection], messages: Sequence[RawMessage], after: int, last_seq: int | None
) -> int:
    """Fold a batch into each laggard alone; what ``decode`` and ``admission`` refuse was parked by the group."""
    ready = await host.prepare(messages, after, last_seq, behind)
    if ready is None:
        return after
    for projection in behind:
        rest = beyond(ready.batch, host.store.view_seq(projection.name))
        await host.folder.fold_alone(projection, rest, ready.prepared.messages, quiet=True)
    return ready.last_seq
