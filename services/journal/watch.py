"""Checks of the broker and of JOURNAL while a node runs: is the broker alive, is the stream still the same."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ...schemas.core.errors import BrokerError, JournalDamaged, StorageFull, ViewsBehind
from ...schemas.core.sequence_set import Range, format_ranges, normalised, sequences_text, size_of, without
from ...schemas.core.subjects import CANARY_SUBJECT, JOURNAL_STREAM
from ...schemas.core.timestamps import format_ts
from ...schemas.settings import FREE_DISK_FLOOR_BYTES
from ..parts import Part, end_task
from .broker.broker import ManagedBroker
from .broker.connection import BrokerConnection
from .broker.streams import made_at, stream_gaps, stream_info
from .publishing import Writer, read_answer

_log = structlog.get_logger(__name__)


# The loop that runs all checks of broker and stream, each at its own interval.
#
# Invariant: a slow check does not delay other checks, because with a hanging broker each request waits for its whole
# time-out. The next run of the same check starts after its end. A failed check ends neither the loop nor later checks.


class Look(Part):
    """A regular check; ``start`` may run it for the first time."""

    every_s: ClassVar[float]
    """Seconds between two checks."""
    after_reconnect: ClassVar[bool] = False
    """Whether to check immediately after a reconnect, too."""

    @abstractmethod
    async def look(self) -> None:
        """Look once.

        Raises:
            BrokerError: If the broker does not answer; the connection reports it.
        """


class Watch(Part):
    """Runs several checks until it is stopped.

    Args:
        client: The connection whose reconnects trigger checks.
        looks: The checks; the caller starts them and shows their state.
    """

    def __init__(self, client: BrokerConnection, *looks: Look) -> None:
        self._client = client
        self._looks = looks
        self._reconnected = asyncio.Event()

    async def start(self) -> None:
        """Start the loop; the first check runs after one interval."""
        self._forget = self._client.on_reconnect(self._reconnected.set)
        self._task = asyncio.create_task(self._run(), name="watch of broker and stream")

    async def stop(self) -> None:
        """Stop the loop and cancel running checks."""
        self._forget()
        await end_task(self._task)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = {look: loop.time() + look.every_s for look in self._looks}
        running: dict[Look, asyncio.Task[None]] = {}
        try:
            while True:
                now = loop.time()
                for look, at in due.items():
                    if now >= at and (look not in running or running[look].done()):
                        running[look] = asyncio.create_task(_once(look))
                        due[look] = now + look.every_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(look.every_s for look in self._looks)):
                        await self._reconnected.wait()
                        self._reconnected.clear()
                        due |= {look: 0.0 for look in self._looks if look.after_reconnect}
        finally:
            for task in running.values():
                await end_task(task)


async def _once(look: Look) -> None:
    try:
        await look.look()
    except BrokerError:  # the broker is unavailable; the connection reports it
        pass
    except Exception:
        _log.exception("watch.failed", look=type(look).__name__)


# Checks whether JOURNAL is still the stream from which the views were folded.
#
# A stream that is deleted and created again starts at sequence 1; the views, whose checkpoints are higher, would
# silently skip every new message. The stream's ``made_at`` is compared at the start (``consumers/host/opening``), and
# here while a node runs.
#
# Invariant: from the check after a replacement until its restart, the node is not ready and names the replaced stream
# as the reason.


LOOK_EVERY_S: Final = 15.0
"""Seconds between two checks; usually a replacement also interrupts the connection, after which a check follows at once."""


class StreamWatch(Look):
    """Compares the creation time of JOURNAL with the time recorded in the views.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream from which the views were folded.
    """

    every_s = LOOK_EVERY_S
    after_reconnect = True

    def __init__(self, client: BrokerConnection, made: str) -> None:
        self._client = client
        self._made = made
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """A sentence if the stream was replaced, else None."""
        return self._trouble

    async def start(self) -> None:
        """Check for the first time."""
        await self.look()

    async def look(self) -> None:
        """Check once, unless a replacement was already found."""
        if self._trouble is not None:
            return
        info = await stream_info(self._client, JOURNAL_STREAM)
        made = made_at(info) if info is not None else "never"
        if made != self._made:
            self._trouble = (
                f"the stream {JOURNAL_STREAM} is another one than at the start (made {made}, before {self._made}): "
                "start the node again, its views are then folded from this one"
            )
            _log.error("stream.replaced", made=made, before=self._made)


# Checks whether JOURNAL still holds all acked messages.

"""Seconds between two checks; a check takes less than 1 ms if no message was deleted."""
FOLD_WAIT_S: Final = 5.0
"""Seconds to wait for the views to fold events that may explain a gap; otherwise the next check decides."""


class GapWatch(Look):
    """Checks JOURNAL at the start, after each reconnect and regularly.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream.
        last_seq: Last sequence of the stream at the start.
        clock: The time, UTC.
        read: Sequences that reads of the stream did not return.
        explained: Sequences that the views know to be erased or accepted as lost; blocking.
        folded: Waits until the views have folded up to a sequence, some seconds; raises ``ViewsBehind``.
        kept: Names of view files with entries that the stream has lost; blocking.
        said: Returns warnings about damage from the broker's log; blocking.
        on_lost_end: Called with a sentence if the stream has lost its last messages.
    """

    every_s = LOOK_EVERY_S
    after_reconnect = True

    def __init__(
        self,
        client: BrokerConnection,
        *,
        made: str,
        last_seq: int,
        clock: Callable[[], datetime],
        read: Callable[[], Sequence[Range]],
        explained: Callable[[], Sequence[Range]],
        folded: Callable[[int, float], Awaitable[int]],
        kept: Callable[[], Sequence[str]],
        said: Callable[[], Sequence[str]],
        on_lost_end: Callable[[str], None],
    ) -> None:
        self._client = client
        self._read = read
        self._explained = explained
        self._folded = folded
        self._read_kept = kept
        self._read_log = said
        self._on_lost_end = on_lost_end
        self._made = made
        self._last_seq = last_seq
        self._clock = clock
        self._missing: list[Range] = []
        self._kept: tuple[str, ...] = ()
        self._said: tuple[str, ...] = ()
        self._since: datetime | None = None
        self._seen: tuple[Any, ...] | None = None

    @property
    def missing(self) -> list[Range]:
        """Sequences that are missing and not explained."""
        return list(self._missing)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of view files with entries that the stream has lost."""
        return self._kept

    @property
    def loss(self) -> str | None:
        """A sentence about missing messages and since when they are missing, None if nothing is missing."""
        if self._since is None:
            return None
        parts = []
        if self._missing:
            parts.append(f"the journal lacks {sequences_text(self._missing)}, and no erasure explains it")
        if self._kept:
            parts.append(f"the stream has lost its end, which {', '.join(self._kept)} knows")
        return f"{'; '.join(parts)}, since {self._since.isoformat(timespec='seconds')}"

    @property
    def trouble(self) -> str | None:
        """A sentence about the loss and its remedy, None if nothing is missing."""
        loss = self.loss
        return None if loss is None else f"JournalDamaged: {loss} ({JournalDamaged.HINT})"

    def figures(self) -> dict[str, Any]:
        """Figures for ``status``."""
        return {
            "trouble": self.trouble,
            "missing": size_of(self._missing),
            "sequences": format_ranges(self._missing),
            "since": self._since,
            "views_kept": list(self._kept),
            "broker_said": list(self._said),
        }

    async def start(self) -> None:
        """Check for the first time."""
        await self.look()

    async def look(self) -> None:
        """Check once.

        Raises:
            BrokerError: If the broker does not tell.
        """
        self._said = tuple(await asyncio.to_thread(self._read_log))
        seen = await stream_gaps(self._client, details=False)
        if seen.made != self._made:
            return  # another stream; ``StreamWatch`` reports it
        if seen.last_seq < self._last_seq:
            self._on_lost_end(
                f"the journal has lost its end: it went to {self._last_seq}, and ends at {seen.last_seq} now"
            )
            return
        self._last_seq = seen.last_seq
        read, kept = normalised(self._read()), tuple(await asyncio.to_thread(self._read_kept))
        now = (seen.count, tuple(read), kept)
        if self._since is None and (now == self._seen or not any(now)):
            self._seen = now
            return
        gaps = await stream_gaps(self._client)
        try:
            await self._folded(gaps.last_seq, FOLD_WAIT_S)
        except ViewsBehind:
            return  # the event that explains the gap may not be folded yet
        explained = await asyncio.to_thread(self._explained)
        self._judge(without(normalised([*gaps.ranges, *read]), normalised(explained)), kept)
        self._seen = now

    def _judge(self, missing: list[Range], kept: tuple[str, ...]) -> None:
        if not missing and not kept:
            if self._since is not None:
                _log.info("journal.explained")
            self._missing, self._kept, self._since = [], (), None
            return
        if self._since is None:
            _log.error("journal.damaged", missing=size_of(missing), sequences=format_ranges(missing), views_kept=kept)
        self._missing, self._kept = missing, kept
        self._since = self._since or self._clock()


# Checks every second whether the broker is alive, with a message to itself.
#
# A hanging process (stopped, deadlocked) keeps its connections, and nats-py notices it only after a minute.
# Invariants: if the broker is silent for ``LATE_S`` seconds, the node is not ready; a managed broker that was silent
# at ``HUNG_LOOKS`` consecutive checks is killed, and its supervisor restarts it. Checks are counted instead of
# seconds, because after a suspension of this process, one check runs before the waiting answers are read.


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


STALL_LOOK_EVERY_S: Final = 2.0
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

    every_s = STALL_LOOK_EVERY_S

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
