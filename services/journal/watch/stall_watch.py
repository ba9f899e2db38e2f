"""Whether JOURNAL takes writes: after a full disk nats-server refuses writes to one stream until it is restarted.

Why: with room on the disk again the server stays up, answers, and takes the canary's writes, yet every append to JOURNAL
fails ("critical write error" in its log, measured with 2.15.1 on a disk of 340 MB). Invariant: a server is restarted only
while it answers, writes wait without a single ack, and the disk has room; never a server that is not ours.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

import structlog

from ....schemas.settings import FREE_DISK_FLOOR_BYTES
from ....schemas.subjects import JOURNAL_STREAM
from ..broker.broker import ManagedBroker
from ..publishing.writer import Writer
from .canary import Canary
from .stream_watch import StreamWatch
from .watch_loop import Look

LOOK_EVERY_S: Final = 2.0
"""Seconds between two looks."""
STALLED_LOOKS: Final = 6
"""Looks in a row with writes waiting and none acked: 12 s, so that a restart helps the appends that wait (30 s at most)."""
PAUSE_LOOKS: Final = 30
"""Looks after a restart until the next one, a minute; doubled each time until a write is acked."""
PAUSE_LOOKS_MAX: Final = 900

_log = structlog.get_logger(__name__)


class StallWatch(Look):
    """Notices that the broker answers but JOURNAL takes no writes, reports it, and restarts a managed broker.

    Args:
        writer: Whose writes wait.
        canary: Says whether the broker takes writes elsewhere.
        stream_watch: Says whether JOURNAL is there.
        broker: Restarted; None if it is not managed.
        data_dir: Whose disk must have room.
    """

    every_s = LOOK_EVERY_S

    def __init__(
        self,
        writer: Writer,
        canary: Canary,
        stream_watch: StreamWatch,
        broker: ManagedBroker | None,
        data_dir: Path,
    ) -> None:
        self._writer = writer
        self._canary = canary
        self._stream_watch = stream_watch
        self._broker = broker
        self._data_dir = data_dir
        self._acked = writer.acked
        self._stalled = 0
        self._pause = PAUSE_LOOKS
        self._wait = 0

    @property
    def trouble(self) -> str | None:
        """A message if writes to JOURNAL are not acked; None if they are, or if there were none."""
        if self._stalled < STALLED_LOOKS:
            return None
        return (
            f"the stream {JOURNAL_STREAM} takes no writes although the broker answers: after a full disk nats-server "
            "must be restarted (a nats-server that the node started is restarted automatically once the disk has room)"
        )

    async def look(self) -> None:
        """Look once, and act."""
        self._wait = max(0, self._wait - 1)
        acked = self._writer.acked
        if acked != self._acked:
            self._acked, self._stalled, self._pause = acked, 0, PAUSE_LOOKS
            return
        if self._canary.outcome.ok is not True or self._stream_watch.trouble is not None:
            return  # other watches report the reason
        self._stalled += self._writer.in_flight > 0
        if self._stalled < STALLED_LOOKS or self._wait or self._broker is None:
            return
        disk = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
        if disk.free < FREE_DISK_FLOOR_BYTES:
            return
        _log.error("broker.stalled", stream=JOURNAL_STREAM, waiting=self._writer.in_flight)
        self._wait, self._pause = self._pause, min(2 * self._pause, PAUSE_LOOKS_MAX)
        await self._broker.restart()
