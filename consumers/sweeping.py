"""What the reactors that sweep have in common: they wait for a tick, do their work over the views, and say what they did.

Invariants: ticks are worked off one at a time, in the journal's order, so nights that were slept through are caught up
in order; each is finished once (a ``sweep.finished`` with counts, or with the error), also when it comes again; a sweep that
fails is finished with its error, for the next tick begins anew, and only broker and views that are away make it wait.

Durable: ack policy explicit, ack wait ``SweepLimits.ack_wait_s`` (renewed while the sweep runs), unlimited deliveries, one
unacked tick over all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from crew_journal.consumers.backoff import Backoff
from crew_journal.consumers.control_facts import encode_control
from crew_journal.consumers.facts import publish_fact
from crew_journal.consumers.pull import Durable, PullConsumer
from crew_journal.consumers.reactor import ReactorStatus
from crew_journal.schemas.decode import decode
from crew_journal.schemas.endings import end_task
from crew_journal.schemas.entry import Severity
from crew_journal.schemas.errors import BrokerError, CrewJournalError, FoldError, ViewsBehind
from crew_journal.schemas.events.control import SweepFinished, SweepTicked
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.schemas.events.envelope import EntryRecorded
from crew_journal.schemas.ids import derived_id
from crew_journal.schemas.ports import Published, Publisher, ViewReader
from crew_journal.schemas.subjects import Family
from crew_journal.schemas.timestamps import parse_ts, to_ms
from crew_journal.schemas.views import ENTRIES

FILTER_SUBJECTS: Final = (f"{Family.CONTROL.value}.*.{SweepTicked.ENTRY_TYPE}",)
_ERROR_CHARS: Final = 500
"""What ``SweepFinished.error`` holds."""
_FINISHED: Final = (
    f"""SELECT 1 FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ? AND id = ? LIMIT 1"""
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """Times of a sweeping reactor.

    Attributes:
        wait_s: Seconds a request for the next tick stands at the broker; a lost connection is noticed after it.
        window_s: Seconds to let a request fill.
        ack_wait_s: Seconds until a tick of a killed process comes to another; renewed three times in it.
        views_wait_s: Seconds to wait for the views to pass a tick before it is given back.
        backoff_first_s: Seconds of the first pause when the broker or the views are away.
        backoff_last_s: Seconds of the longest such pause.
        stop_s: Seconds ``stop`` waits for the sweep in hand before it breaks it off; it comes again.
    """

    wait_s: float = 2.0
    window_s: float = 0.01
    ack_wait_s: float = 60.0
    views_wait_s: float = 30.0
    backoff_first_s: float = 0.5
    backoff_last_s: float = 60.0
    stop_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A sweep that is due.

    Attributes:
        seq: Its stream sequence: the sweep looks at what came before it.
        entry_id: Its id, the cause of every fact.
        workspace_id: The workspace to sweep.
        due: When it was due, as the tick spells it.
        due_ms: The same instant, milliseconds since the epoch: the sweep's "now".
    """

    seq: int
    entry_id: str
    workspace_id: str
    due: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did, and what kept it from doing all of it."""

    counts: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


class SweepReactor(ABC):
    """A reactor for one kind of sweep.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: The views it looks at.
        clock: The time for ``status``; sweeps take theirs from the tick.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    sweep: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Projections that must have passed the tick."""

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        views: ViewReader,
        *,
        clock: Callable[[], datetime],
        limits: SweepLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits or SweepLimits()
        self._publisher = publisher
        self._views = views
        self._clock = clock
        self._source = PullConsumer(
            client,
            Durable(
                name=f"sweep-{self.name}-v{self.version}",
                filter_subjects=FILTER_SUBJECTS,
                ack_wait_s=self._limits.ack_wait_s,
                max_ack_pending=1,
                description=f"ticks of the {self.sweep} sweep",
                sparse=True,
            ),
        )
        self._backoff = Backoff(self._limits.backoff_first_s, self._limits.backoff_last_s, draw)
        self._counts: Counter[str] = Counter(swept=0, failed=0, repeated=0)
        self._state = "stopped"
        self._last_error: str | None = None
        self._since: datetime | None = None
        self._pending = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def work(self, tick: Tick) -> Swept:
        """Do one sweep; the views have passed the tick.

        Raises:
            BrokerError, ViewsBehind: It is tried again; anything else ends the sweep with its error.
        """

    @property
    def identity(self) -> str:
        """``name@version``, written into every fact."""
        return f"{self.name}@{self.version}"

    async def publish(self, fact: OutgoingMessage) -> Published:
        """Publish a fact of this sweep."""
        return await publish_fact(self._publisher, self._source, fact)

    async def start(self) -> None:
        """Begin; returns at once, whether or not the broker is there."""
        if self._task is None:
            self._stopping.clear()
            self._state = "waiting"
            self._task = asyncio.create_task(self._run(), name=f"sweep-{self.name}")

    async def stop(self) -> None:
        """Finish the sweep in hand, at most ``stop_s`` seconds, else give its tick back, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        self._source.interrupt()
        done, _ = await asyncio.wait({task}, timeout=self._limits.stop_s)
        if not done:
            await end_task(task)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._state = "stopped"

    async def status(self) -> ReactorStatus:
        """How it is doing; ``pending`` counts the ticks of every kind of sweep that are still to be looked at."""
        if self._state != "stopped":
            with contextlib.suppress(BrokerError):
                self._pending = await self._source.pending()
        return ReactorStatus(
            self.identity, self._state, self._pending, dict(self._counts), self._last_error, self._since
        )

    async def _run(self) -> None:
        limits = self._limits
        try:
            while not self._stopping.is_set():
                try:
                    await self._source.open()
                    while not self._stopping.is_set():
                        for message in await self._source.take(1, wait_s=limits.wait_s, window_s=limits.window_s):
                            await self._take_up(message)
                        self._recovered()
                except (BrokerError, NatsError, ViewsBehind) as error:
                    await self._fall_back(error, str(error))
                except Exception as error:  # a fault of ours: said aloud (no locals, they may hold memory text)
                    _log.error("sweep.fault", sweep=self.sweep, error=type(error).__name__, at=_places(error))
                    await self._fall_back(error, f"{type(error).__name__}, see the log")
        finally:
            await self._source.close()

    async def _take_up(self, message: Msg) -> None:
        tick = tick_of(message, self.sweep)
        if tick is None:
            await message.ack()
            return
        renewing = asyncio.create_task(self._renew(message), name=f"sweep-{self.name} renewing")
        try:
            await self._views.wait_for(tick.seq, self._limits.views_wait_s, *self.needs)
            await self._sweep_once(tick)
        except BaseException:
            with contextlib.suppress(NatsError):
                await message.nak()
            raise
        finally:
            await end_task(renewing)
        await message.ack()

    async def _sweep_once(self, tick: Tick) -> None:
        fact_id = derived_id(self.name, self.version, f"{tick.workspace_id}/{tick.entry_id}", "finished")
        named = [tick.workspace_id, SweepFinished.ENTRY_TYPE, fact_id]
        if await asyncio.to_thread(self._views.rows, _FINISHED, named):
            self._counts["repeated"] += 1
            return
        swept = await self._attempt(tick)
        self._counts["failed" if swept.error else "swept"] += 1
        finished = SweepFinished.model_validate(
            {"sweep": self.sweep, "due": tick.due, "counts": dict(swept.counts), "error": swept.error}
        )
        figures = ", ".join(f"{name} {count}" for name, count in swept.counts.items()) or "nothing to do"
        fact = encode_control(
            tick.workspace_id,
            finished,
            fact_id=fact_id,
            cause=tick.entry_id,
            reactor=self.identity,
            summary=f"{self.sweep} sweep of {tick.due}: {'broken off, ' if swept.error else ''}{figures}",
            severity=Severity.WARN if swept.error else Severity.INFO,
        )
        await self.publish(fact)

    async def _attempt(self, tick: Tick) -> Swept:
        try:
            return await self.work(tick)
        except (BrokerError, NatsError, ViewsBehind):
            raise
        except CrewJournalError as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}, see the log"
            _log.error("sweep.fault", sweep=self.sweep, error=type(error).__name__, at=_places(error))
        _log.warning("sweep.failed", sweep=self.sweep, workspace=tick.workspace_id, seq=tick.seq, due=tick.due)
        return Swept(error=failure[:_ERROR_CHARS])

    async def _renew(self, message: Msg) -> None:
        while True:
            await asyncio.sleep(self._limits.ack_wait_s / 3)
            with contextlib.suppress(NatsError):
                await message.in_progress()

    async def _fall_back(self, error: Exception, said: str) -> None:
        if self._since is None:
            self._since = self._clock()
        self._state = "waiting"
        self._last_error = said
        pause_s = self._backoff.next()
        _log.warning("sweep.waiting", sweep=self.sweep, error=type(error).__name__, retry_in_s=round(pause_s, 3))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    def _recovered(self) -> None:
        self._backoff.reset()
        self._state = "running"
        self._last_error = None
        self._since = None


def tick_of(message: Msg, sweep: str) -> Tick | None:
    """The tick in a message; None if it is none of this sweep (or none at all: the projections park it)."""
    try:
        seq = message.metadata.sequence.stream
        event = decode(seq, message.subject, message.headers, message.data, 0)
        if (
            not isinstance(event, EntryRecorded)
            or not event.control
            or event.entry.entry_type != SweepTicked.ENTRY_TYPE
        ):
            return None
        ticked = SweepTicked.model_validate(event.entry.payload)
        if ticked.sweep != sweep:
            return None
        return Tick(seq, event.entry.id, event.workspace_id, ticked.due, to_ms(parse_ts(ticked.due)))
    except (FoldError, ValidationError, ValueError):
        return None


def _places(error: Exception) -> list[str]:
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
