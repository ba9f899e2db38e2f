"""Base of the sweeping reactors: on each tick they process the views and publish counts.

Invariants: ticks of a workspace are handled one at a time, in the journal's order, including ticks from nights on which
the node was off. Each tick is finished once, even if it is redelivered, by a ``sweep.finished`` with counts or with the
error. A failed sweep is not retried, because the next tick starts again; only if the broker or the views are
unavailable does it wait.

Durable: ack policy explicit, ack wait ``SweepLimits.ack_wait_s`` (renewed while the sweep runs), unlimited deliveries, at
most ``max_ack_pending`` unacked ticks over all processes.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Unpack

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from ...schemas.core.entry import Severity
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import BrokerError, CrewJournalError, FoldError, ViewsBehind
from ...schemas.core.ids import derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.subjects import Family
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.decode import decode
from ...schemas.entries.tables import ENTRIES
from ...schemas.sweeps.events import SweepFinished, SweepTicked
from ...schemas.sweeps.rules import Sweep
from ..feed.jetstream import SWEEP_ACK_PENDING
from .pull_reactor import FactFields, ViewsLimits, ViewsReactor, places

FILTER_SUBJECTS: Final = (f"{Family.CONTROL.value}.*.{SweepTicked.ENTRY_TYPE}",)
_ERROR_CHARS: Final = 500
"""Maximum length of ``SweepFinished.error``."""
_FINISHED: Final = (
    f"""SELECT 1 FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ? AND id = ? LIMIT 1"""
)
_AWAY: Final = (BrokerError, NatsError, ViewsBehind)
"""Errors for which the sweep is not at fault: the broker or the views are unavailable."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepLimits(ViewsLimits):
    """Times of a sweeping reactor; a sweep that ``stop`` interrupts is repeated."""

    window_s: float = 0.01
    backoff_first_s: float = 0.5
    stop_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A sweep that is due.

    Attributes:
        seq: Its stream sequence; the sweep processes earlier messages.
        entry_id: Its id, the cause of every fact.
        workspace_id: The workspace to sweep.
        due: When it was due, as written in the tick.
        due_ms: The same time in milliseconds since the epoch: the sweep's "now".
        crew_id: The requested crew; None for all.
        since_ms: Start of the requested look-back, milliseconds since the epoch; None for the sweep's default.
    """

    seq: int
    entry_id: str
    workspace_id: str
    due: str
    due_ms: int
    crew_id: str | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """The counts of a sweep, and the error that ended it early."""

    counts: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    severity: Severity = Severity.INFO


class TickReactor(ViewsReactor):
    """A reactor on the ticks of one sweep; handles workspaces concurrently, the ticks of each in the journal's order."""

    sweep: ClassVar[Sweep]
    filter_subjects = FILTER_SUBJECTS
    max_ack_pending = SWEEP_ACK_PENDING
    default_limits = SweepLimits()

    def workspace_of(self, message: Msg) -> str | None:
        """The workspace of a tick; None if the message is not a tick of this sweep."""
        tick = tick_of(message, self.sweep.name)
        return None if tick is None else tick.workspace_id

    async def handle_all(self, by_workspace: Mapping[str, Sequence[Msg]]) -> None:
        """Handle the ticks of all workspaces concurrently."""
        ended = await asyncio.gather(*(self._settle(*item) for item in by_workspace.items()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Handle ticks of a workspace, in order."""
        for message in messages:
            if tick := tick_of(message, self.sweep.name):
                await self.caught_up()
                await self.on_tick(tick)
            await self._leases.ack(message)

    async def record_of(
        self, tick: Tick, payload: ControlPayload, n: str, summary: str, **fields: Unpack[FactFields]
    ) -> str:
        """Publish what a sweep found or did; see ``record``."""
        return await self.record(tick.workspace_id, payload, n, cause=tick.entry_id, summary=summary, **fields)

    @abstractmethod
    async def on_tick(self, tick: Tick) -> None:
        """Handle a tick; the views have folded the tick and everything that this reactor published before."""


class SweepReactor(TickReactor):
    """A reactor for one kind of sweep; sweeps take their time from the tick."""

    description = "ticks of a sweep"
    counted = ("swept", "failed", "repeated")

    @abstractmethod
    async def work(self, tick: Tick) -> Swept:
        """Do one sweep.

        Raises:
            BrokerError, ViewsBehind: The sweep is retried; any other error ends the sweep and is recorded.
        """

    async def on_tick(self, tick: Tick) -> None:
        """Do one sweep, unless it is finished, and publish its result."""
        fact_id = derived_id(self.name, self.version, f"{tick.workspace_id}/{tick.entry_id}", "finished")
        params = [tick.workspace_id, SweepFinished.ENTRY_TYPE, fact_id]
        if await asyncio.to_thread(self._views.rows, _FINISHED, params):
            self._counts["repeated"] += 1
            return
        swept = await self._attempt(tick)
        self._counts["failed" if swept.error else "swept"] += 1
        finished = SweepFinished.model_validate(
            {"sweep": self.sweep.name, "due": tick.due, "counts": dict(swept.counts), "error": swept.error}
        )
        figures = ", ".join(f"{name} {count}" for name, count in swept.counts.items()) or "nothing to do"
        summary = f"{self.sweep.name} sweep of {tick.due}: {'broken off, ' if swept.error else ''}{figures}"
        severity = Severity.WARN if swept.error else swept.severity
        await self.record_of(tick, finished, "finished", summary, severity=severity)

    def _durable_name(self) -> str:
        return f"sweep-{self.name}-v{self.version}"

    async def _attempt(self, tick: Tick) -> Swept:
        try:
            return await self.work(tick)
        except _AWAY:
            raise
        except CrewJournalError as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}, see the log"
            _log.error("sweep.fault", sweep=self.sweep.name, error=type(error).__name__, at=places(error))
        _log.warning("sweep.failed", sweep=self.sweep.name, workspace=tick.workspace_id, seq=tick.seq, due=tick.due)
        return Swept(error=failure[:_ERROR_CHARS])


def tick_of(message: Msg, sweep: str) -> Tick | None:
    """The tick in a message; None if it is not a tick of this sweep (the projections park an invalid one)."""
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
        since_ms = None if ticked.since is None else to_ms(parse_ts(ticked.since))
        due_ms = to_ms(parse_ts(ticked.due))
        return Tick(seq, event.entry.id, event.workspace_id, ticked.due, due_ms, ticked.crew_id, since_ms)
    except (FoldError, ValidationError, ValueError):
        return None
