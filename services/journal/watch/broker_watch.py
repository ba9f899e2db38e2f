"""Checks every second whether the broker is alive, with a message to itself.

A hanging process (stopped, deadlocked) keeps its connections, and nats-py notices it only after a minute. Invariants:
if the broker is silent for ``LATE_S`` seconds, the node is not ready; a managed broker that was silent at
``HUNG_LOOKS`` consecutive checks is killed, and its supervisor restarts it. Checks are counted instead of seconds,
because after a suspension of this process, one check runs before the waiting answers are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ....schemas.core.errors import StorageFull
from ....schemas.core.subjects import CANARY_SUBJECT, JOURNAL_STREAM
from ....schemas.core.timestamps import format_ts
from ....schemas.settings import FREE_DISK_FLOOR_BYTES
from ..broker.broker import ManagedBroker
from ..broker.connection import BrokerConnection
from ..publishing.acks import read_answer
from ..publishing.writer import Writer
from .stream_watch import StreamWatch
from .watch_loop import Look

EVERY_S: Final = 1.0
"""Seconds between two messages; a message costs 0.5 ms and no disk access."""
LATE_S: Final = 1.5
"""Seconds without an answer after which a broker counts as silent: with ``EVERY_S`` a hanging broker is noticed within
2.5 s. Of 100 messages on two busy cores the slowest took 8 ms.
"""
HUNG_LOOKS: Final = 20
"""Number of silent checks, one per second, until a managed broker is replaced. An append waits 30 s for its ack, so an
append to the hanging broker is still acked by the new one.
"""

_log = structlog.get_logger(__name__)


class Heartbeat(Look):
    """Sends messages to itself through the broker; a part of the node.

    Args:
        client: A separate connection, so that no other messages precede its own.
        broker: The broker to replace when it hangs; None if it is not managed.
        hung_looks: Number of checks without an answer until it is replaced.
    """

    every_s = EVERY_S

    def __init__(self, client: BrokerConnection, broker: ManagedBroker | None, *, hung_looks: int = HUNG_LOOKS) -> None:
        self._client = client
        self._broker = broker
        self._hung_looks = hung_looks
        self._silent_since: float | None = None
        self._heard = asyncio.Event()
        self._silent_looks = 0

    @property
    def trouble(self) -> str | None:
        """A sentence if the connected broker does not answer, and for how long; None if it answers."""
        since = self._silent_since
        silent_s = 0.0 if since is None else asyncio.get_running_loop().time() - since
        if silent_s < LATE_S or not self._client.is_connected:
            return None
        what = f"; it is replaced after {self._hung_looks} s" if self._broker is not None else ""
        return f"the broker has not answered for {silent_s:.0f} s{what}"

    async def start(self) -> None:
        """Subscribe, and send the first message."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(self._inbox, cb=self._hear)
        await self.look()

    async def look(self) -> None:
        """Send a message; replace a managed broker that hangs."""
        up = self._broker is None or self._broker.status().running
        self._silent_looks = self._silent_looks + 1 if up and self._silent_since is not None else 0
        if self._broker is not None and self._silent_looks >= self._hung_looks:
            _log.error("broker.hangs", silent_looks=self._silent_looks)
            await self._broker.restart(patience_s=0.0)  # it does not react to TERM
            self._silent_looks = 0
        if self._silent_since is None:
            self._silent_since = asyncio.get_running_loop().time()
        if self._client.is_connected:
            with contextlib.suppress(NatsError, OSError):  # the connection is being lost; the next check reports it
                await self._client.publish(self._inbox, b"")

    async def _hear(self, _message: Msg) -> None:
        self._silent_since = None


# A write probe: on a full disk JetStream refuses writes although its health page reports ok (facts/nats.md).


PROBE_EVERY_S: Final = 5.0
"""Seconds between probes; a probe costs 0.2 ms, with fsync a few milliseconds."""
PROBE_TIMEOUT_S: Final = 3.0
"""Seconds without an ack after which a probe has failed."""


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """The outcome of the last probe.

    Attributes:
        ok: Whether the broker stored the message; None before the first probe.
        since: UTC time since which ``ok`` has this value.
        checked_at: UTC time of the last probe.
        error: Why the write failed.
        latency_ms: Milliseconds until the ack of the last good probe.
    """

    ok: bool | None
    since: datetime
    checked_at: datetime | None = None
    error: str | None = None
    latency_ms: float | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Canary(Look):
    """Writes one message to the stream CANARY every few seconds.

    Args:
        client: A connection of the service.
        timeout_s: Seconds until a probe has failed.
        clock: The time, UTC.
    """

    every_s = PROBE_EVERY_S

    def __init__(
        self,
        client: Client,
        *,
        timeout_s: float = PROBE_TIMEOUT_S,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._clock = clock
        self._outcome = CanaryOutcome(None, clock())

    @property
    def outcome(self) -> CanaryOutcome:
        """The result of the last probe."""
        return self._outcome

    def figures(self) -> CanaryOutcome:
        """The result of the last probe."""
        return self._outcome

    @property
    def trouble(self) -> str | None:
        """A sentence if the connected broker refuses writes; None if it accepts them."""
        if self._outcome.ok is not False or not self._client.is_connected:
            return None
        return f"the broker does not accept writes: {self._outcome.error}"

    async def start(self) -> None:
        """Probe for the first time."""
        await self.probe()

    async def look(self) -> None:
        """Probe."""
        await self.probe()

    async def probe(self) -> CanaryOutcome:
        """Write a message now."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        error = await self._write()
        now = self._clock()
        ok = error is None
        before = self._outcome
        since = before.since if before.ok is ok else now
        latency_ms = (loop.time() - began) * 1_000 if ok else before.latency_ms
        self._outcome = CanaryOutcome(ok, since, now, error, latency_ms)
        if before.ok is not ok and before.ok is not None:
            _log.log(20 if ok else 40, "canary.recovered" if ok else "canary.failed", error=error)
        return self._outcome

    async def _write(self) -> str | None:
        if not self._client.is_connected:
            return "not connected to the broker"
        body = format_ts(self._clock()).encode()
        try:
            answer = await self._client.request(CANARY_SUBJECT, body, timeout=self._timeout_s)
        except (NatsError, TimeoutError) as error:
            return f"no ack: {str(error) or type(error).__name__}"
        read = read_answer(answer.data)
        return None if read.error is None else str(read.error)


# Checks whether JOURNAL accepts writes: after a full disk nats-server may refuse writes to one stream until it is
# restarted.


LOOK_EVERY_S: Final = 2.0
"""Seconds between two checks."""
STALLED_LOOKS: Final = 6
"""Number of consecutive checks with waiting writes and no ack: 12 s, so that a restart still helps the waiting appends
(at most 30 s).
"""
PAUSE_LOOKS: Final = 30
"""Number of checks between two restarts: one minute; doubled each time until a write is acked."""
PAUSE_LOOKS_MAX: Final = 900


class StallWatch(Look):
    """Detects that the broker answers but JOURNAL accepts no writes, reports it, and restarts a managed broker.

    Args:
        writer: The writer whose waiting writes are observed.
        canary: Shows whether the broker accepts writes to another stream.
        stream_watch: Shows whether JOURNAL exists.
        broker: Restarted; None if it is not managed.
        data_dir: The data directory, whose disk must have room.
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
        """A sentence if writes to JOURNAL are not acked; None if they are acked or there were no writes."""
        if self._stalled < STALLED_LOOKS:
            return None
        return (
            f"the stream {JOURNAL_STREAM} takes no writes although the broker answers: after a full disk nats-server "
            "must be restarted (a nats-server that the node started is restarted automatically once the disk has room)"
        )

    async def look(self) -> None:
        """Check once, and act."""
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


# Checks whether the disk is full; nats-server then does not answer a write.


def disk_trouble(folder: Path) -> StorageFull | None:
    """An error if the disk of a managed broker is full; None if it has room or its state is unknown. Costs 1 µs.

    Args:
        folder: The data directory; messages do not name it, because every caller may read them.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= FREE_DISK_FLOOR_BYTES:
        return None
    return StorageFull(
        f"the broker stores nothing: the disk of its data directory is full ({free // 2**20} MiB are free, "
        f"{FREE_DISK_FLOOR_BYTES // 2**20} are needed)",
        hint="free disk space, then try again with the same ids: once a write waits, the broker is restarted automatically",
    )
