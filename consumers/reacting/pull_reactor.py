"""Base of all reactors on a durable: start and stop, pauses, status.

Invariants: an error never ends a reactor: it returns the held messages and restarts after a growing pause. When it
stops, it returns unsettled messages, so that no message is lost. Only a fault of our code is logged as an error; if the
broker, a model or the views are unavailable, the reactor waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from ...schemas.core import headers as h
from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.errors import BrokerError, CrewJournalError
from ...schemas.core.ids import unforeseen
from ...schemas.core.ports import Published, Publisher
from ..endings import end_task
from ..feed.jetstream import REACTOR_ACK_WAIT_S, REACTOR_WAIT_S, REACTOR_WINDOW_S
from ..reactor import ReactorStatus
from .backoff import Backoff
from .durable import Durable
from .pull import Leases, PullConsumer

# Publishes the facts of reactors once, even if a client has used their message ids.


async def publish_fact(publisher: Publisher, source: PullConsumer, fact: OutgoingMessage) -> Published:
    """Publish a fact; returns after the ack.

    Args:
        publisher: Publishes to JOURNAL.
        source: Any consumer of JOURNAL, to read the stored message of a duplicate.
        fact: The fact, including its deterministic ``Nats-Msg-Id``.

    Raises:
        BrokerUnavailable: If no ack came within the bound.
    """
    published = await publisher.publish(fact.subject, fact.body, fact.headers)
    if not published.duplicate or await source.subject_at(published.seq) in (fact.subject, None):
        return published
    headers = {**fact.headers, h.MSG_ID: unforeseen(fact.headers[h.MSG_ID])}
    return await publisher.publish(fact.subject, fact.body, headers)


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Times of a reactor that reads from a durable.

    Attributes:
        wait_s: Seconds that a request for the next message waits at the broker; a lost connection is noticed after this
            time.
        window_s: Seconds to let a batch fill.
        ack_wait_s: Seconds until the broker delivers a killed process's messages to another process; renewed three
            times in this time.
        backoff_first_s: Seconds of the first pause when the broker, the views or a model is unavailable.
        backoff_last_s: Seconds of the longest such pause.
        stop_s: Seconds that ``stop`` waits for the current turn before the held messages are returned.
    """

    wait_s: float = REACTOR_WAIT_S
    window_s: float = REACTOR_WINDOW_S
    ack_wait_s: float = REACTOR_ACK_WAIT_S
    backoff_first_s: float = 1.0
    backoff_last_s: float = 60.0
    stop_s: float = 10.0


class PullReactor(ABC):
    """A reactor on a durable; processes that use the same durable share the messages.

    Args:
        client: A connection that reconnects without limit; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        durable: The durable that it consumes.
        limits: Times.
        clock: The time for ``status``.
        draw: Uniform in [0, 1); spreads the pauses of several processes.
        counted: Counters that ``status`` shows from the start; other counters appear when they are first incremented.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    waits_for: ClassVar[tuple[type[Exception], ...]] = (BrokerError, NatsError)
    """Errors that say that the broker, the views or a model is unavailable."""

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        durable: Durable,
        limits: PullLimits,
        *,
        clock: Callable[[], datetime],
        draw: Callable[[], float],
        counted: Iterable[str],
    ) -> None:
        self._publisher = publisher
        self._source = PullConsumer(client, durable)
        self._leases = Leases(durable.ack_wait_s, durable.name)
        self._counts: Counter[str] = Counter(dict.fromkeys(counted, 0))
        self._durable = durable.name
        self._stop_s = limits.stop_s
        self._clock = clock
        self._backoff = Backoff(limits.backoff_first_s, limits.backoff_last_s, draw)
        self._state = "stopped"
        self._last_error: str | None = None
        self._since: datetime | None = None
        self._pending = 0
        self._written = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def turn(self) -> None:
        """Take messages, handle and settle them; may return without messages.

        Raises:
            Exception: Any error; the held messages are returned, and after a pause the next turn begins.
        """

    async def open(self) -> None:
        """Declare the durable, before the first turn and after every pause."""
        await self._source.open()

    @property
    def identity(self) -> str:
        """``name@version``, written into every fact."""
        return f"{self.name}@{self.version}"

    @property
    def durable(self) -> str:
        """The name of its durable."""
        return self._durable

    async def publish(self, fact: OutgoingMessage) -> Published:
        """Publish a fact; returns after the ack.

        Raises:
            BrokerUnavailable: If no ack came within the bound.
        """
        published = await publish_fact(self._publisher, self._source, fact)
        self._written = max(self._written, published.seq)
        return published

    async def start(self) -> None:
        """Begin; returns at once, even if the broker or a model is unavailable."""
        if self._task is None:
            self._stopping.clear()
            self._state = "waiting"
            self._task = asyncio.create_task(self._run(), name=self._durable)

    async def stop(self) -> None:
        """Finish the current turn within ``stop_s`` seconds, return the held messages, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        self._source.interrupt()
        await asyncio.wait({task}, timeout=self._stop_s)
        await end_task(task)
        self._state = "stopped"

    async def status(self) -> ReactorStatus:
        """The status; ``pending`` is the last known value if the broker does not answer."""
        if self._state != "stopped":
            with contextlib.suppress(BrokerError):
                self._pending = await self._source.pending()
        counts = dict(self._counts)
        return ReactorStatus(self.identity, self._state, self._pending, counts, self._last_error, self._since)

    async def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self.open()
                    while not self._stopping.is_set():
                        await self.turn()
                        self._recovered()
                except self.waits_for as error:
                    await self._fall_back(error)
                except Exception as error:  # a fault of our code: logged and retried
                    _log.error("reactor.fault", durable=self._durable, error=type(error).__name__, at=places(error))
                    await self._fall_back(error)
        finally:
            await self._leases.give_back()
            await self._source.close()

    async def _fall_back(self, error: Exception) -> None:
        await self._leases.give_back()
        if self._since is None:
            self._since = self._clock()
        self._state = "waiting"
        known = isinstance(error, CrewJournalError | NatsError)
        self._last_error = str(error) if known else f"{type(error).__name__}, see the log"
        pause_s = self._backoff.next()
        _log.warning(
            "reactor.waiting",
            durable=self._durable,
            error=type(error).__name__,
            failures=self._backoff.failures,
            retry_in_s=round(pause_s, 3),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    def _recovered(self) -> None:
        if self._since is not None:
            _log.info("reactor.recovered", durable=self._durable)
        self._backoff.reset()
        self._state = "running"
        self._last_error = None
        self._since = None


def places(error: BaseException) -> list[str]:
    """The locations in an error's traceback, for the log; without local variables, which may hold memory text."""
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
