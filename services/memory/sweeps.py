"""Keeps time for the sweeps: publishes a ``sweep.ticked`` when one is due, and catches up what a downtime missed.

Why ticks are events: decay is a fold and must take its time from the journal; health and index sweeps are reactors that
may run anywhere. Ours is the one clock among them.

Invariants: a tick's id follows from workspace, sweep and due time, so however many nodes keep time, the journal has one;
missed ticks come once each and in order, the newest ``MOST_MISSED`` of each sweep; a workspace's first is the first due
time after its first entry. A decay is finished by its fold, and we say so for it: ``sweep.finished`` with the rows it
went over, for the last decay of a workspace (the ones before it in a catching up are superseded by it).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
import structlog

from ...schemas.endings import end_task
from ...schemas.errors import BrokerUnavailable, CrewJournalError, EntryConflict
from ...schemas.events.control import ControlPayload, SweepFinished, SweepTicked
from ...schemas.ids import derived_id
from ...schemas.operations.sweeps import SweepAnswer, SweepRequest
from ...schemas.ports import ViewReader
from ...schemas.rules.sweeps import SCHEDULES, due_times
from ...schemas.timestamps import format_ms, to_ms
from ...schemas.views import (
    DECAYS,
    ENTRIES,
    ENTRIES_PROJECTION,
    IMPORTANCE_PROJECTION,
    SWEEPS,
    SWEEPS_PROJECTION,
)
from ..desk import Caller
from ..journal.append import Appended
from ..journal.recorder import Recorder

POLL_S: Final = 30.0
"""Seconds between looks at the clock; a night's sweep need not start on the second."""
FOLD_WAIT_S: Final = 30.0
"""Seconds to wait until the views have folded a tick."""
AT_ONCE: Final = 8
"""Workspaces whose ticks are published at once; within one they go in order."""
ID_TRIES: Final = 4
"""Ids tried for one tick: an agent may have taken one for an entry of its own."""
FAILED: Final = "failed; an OWNER or ADMIN sees why"
DECAY: Final = "decay"
_ID_VERSION: Final = 1
_BEGUN: Final = f"SELECT workspace_id, min(published_ms), max(seq) FROM {ENTRIES} WHERE seq > ? GROUP BY ALL"
_LAST: Final = f"SELECT workspace_id, sweep, due_ms FROM {SWEEPS} WHERE due_ms IS NOT NULL"
_UNFINISHED: Final = f"""SELECT d.workspace_id, d.due_ms, d.decayed FROM {DECAYS} d LEFT JOIN {SWEEPS} s
    ON s.workspace_id = d.workspace_id AND s.sweep = '{DECAY}' WHERE coalesce(s.finished_due_ms < d.due_ms, true)"""
_SHOWN: Final = f"""SELECT workspace_id, sweep, due_ms, finished_due_ms, finished_ms, counts, error FROM {SWEEPS}
    WHERE $1 IS NULL OR workspace_id = $1 ORDER BY workspace_id, sweep LIMIT 300"""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tick:
    """One due time of one sweep; ``due_ms`` in milliseconds since the epoch."""

    due_ms: int
    workspace_id: str
    sweep: str


class _Workspaces:
    """When each workspace began: asked of the entries once, then of those that came since.

    Args:
        views: The views; what was learned is forgotten when they are swapped or rebuilt.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._generation = -1
        self._seq = 0
        self._begun: dict[str, int] = {}

    def begun(self) -> dict[str, int]:
        """When the first entry of each workspace was published, ms since the epoch; blocking, one call at a time."""
        generation = self._views.generation
        if generation != self._generation:
            self._generation, self._seq, self._begun = generation, 0, {}
        for workspace, first_ms, last_seq in self._views.rows(_BEGUN, [self._seq]):
            self._seq = max(self._seq, int(last_seq))
            if not workspace.startswith("_"):
                self._begun[workspace] = min(first_ms, self._begun.get(workspace, first_ms))
        return self._begun


class Sweeps:
    """Keeps time.

    Args:
        journal: Records the ticks.
        views: Know the workspaces and their last ticks.
        clock: The time now, UTC.
        poll_s: Seconds between looks at the clock.
    """

    def __init__(
        self, journal: Recorder, views: ViewReader, *, clock: Callable[[], datetime], poll_s: float = POLL_S
    ) -> None:
        self._journal = journal
        self._views = views
        self._workspaces = _Workspaces(views)
        self._clock = clock
        self._poll_s = poll_s
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._error: str | None = None

    async def start(self) -> None:
        """Keep time in the background."""
        self._task = asyncio.create_task(self._run(), name="sweeps")

    async def stop(self) -> None:
        """Keep time no longer; what becomes due is caught up after the next start."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    def figures(self, workspace_id: str | None, *, reasons: bool = True) -> dict[str, Any]:
        """What ``status`` shows: last tick and finish of each sweep, of a workspace or of all; blocking.

        Args:
            workspace_id: The workspace; all if None.
            reasons: Whether to say why something failed: a reason may name an address, which is not for every token.
        """
        rows = self._views.rows(_SHOWN, [workspace_id])
        return {
            "error": _told(self._error, reasons),
            "sweeps": [
                {
                    "workspace_id": workspace,
                    "sweep": sweep,
                    "due": _shown(due),
                    "finished_due": _shown(finished_due),
                    "finished_at": _shown(finished),
                    "counts": orjson.loads(counts) if counts else {},
                    "error": _told(error, reasons),
                }
                for workspace, sweep, due, finished_due, finished, counts, error in rows
            ],
        }

    async def run_now(self, caller: Caller, asked: SweepRequest) -> SweepAnswer:
        """Tick now, after what was missed, and wait until the tick is folded.

        Raises:
            BrokerUnavailable: If the tick could not be recorded.
            ViewsBehind: If it was recorded and is not folded in time.
        """
        workspace_id, sweep = caller.workspace_id, asked.sweep
        async with self._turn:
            due_ms = to_ms(self._clock())
            await self._publish_missed(workspace_id, due_ms)
            recorded = await self._publish(Tick(due_ms, workspace_id, sweep))
            await self._views.wait_for(recorded.seq, FOLD_WAIT_S, ENTRIES_PROJECTION, IMPORTANCE_PROJECTION)
            finished = await self._finish_decays()
        decayed = finished.get(workspace_id) if sweep == DECAY else None
        counts = {} if decayed is None else {"decayed": decayed}
        return SweepAnswer(
            workspace_id=workspace_id, sweep=sweep, due=format_ms(due_ms), seq=recorded.seq, counts=counts
        )

    async def catch_up(self, workspace_id: str) -> None:
        """Tick what a workspace has missed by now, so that a tick on request does not pass over it.

        Raises:
            BrokerUnavailable: If a tick could not be recorded.
        """
        async with self._turn:
            await self._publish_missed(workspace_id, to_ms(self._clock()))

    async def check(self) -> int:
        """Publish what is due by now; returns how many ticks.

        Raises:
            BrokerUnavailable: If one could not be recorded; the next look goes on there.
        """
        async with self._turn:
            due = await self._due(to_ms(self._clock()))
            by_workspace: dict[str, list[Tick]] = {}
            for tick in due:
                by_workspace.setdefault(tick.workspace_id, []).append(tick)
            at_once = asyncio.Semaphore(AT_ONCE)

            async def publish(ticks: list[Tick]) -> int:
                async with at_once:
                    return [(await self._publish(tick)).seq for tick in ticks][-1]

            if by_workspace:
                last = max(await asyncio.gather(*map(publish, by_workspace.values())))
                _log.info("sweeps.ticked", ticks=len(due), workspaces=len(by_workspace), seq=last)
                await self._views.wait_for(last, FOLD_WAIT_S, ENTRIES_PROJECTION, IMPORTANCE_PROJECTION)
            await self._finish_decays()
            return len(due)

    async def _run(self) -> None:
        while True:
            try:
                await self.check()
                self._error = None
            except CrewJournalError as error:  # the broker is away or the views are behind: the next look goes on
                if self._error is None:
                    _log.warning("sweeps.not_ticked", error=error.message)
                self._error = error.message
            except Exception:
                _log.exception("sweeps.failed")
            await asyncio.sleep(self._poll_s)

    async def _due(self, now_ms: int) -> list[Tick]:
        """What was due since each workspace's last ticks, in order of due time."""
        first = await asyncio.to_thread(self._workspaces.begun)
        rows = await asyncio.to_thread(self._views.rows, _LAST, [])
        last = {(workspace, sweep): due_ms for workspace, sweep, due_ms in rows}
        return sorted(
            (
                Tick(due_ms, workspace, sweep)
                for workspace, first_ms in first.items()
                for sweep, schedule in SCHEDULES.items()
                for due_ms in due_times(schedule, last.get((workspace, sweep), first_ms), now_ms)
            ),
            key=lambda tick: (tick.due_ms, tick.workspace_id, tick.sweep),
        )

    async def _publish_missed(self, workspace_id: str, now_ms: int) -> None:
        for tick in await self._due(now_ms):
            if tick.workspace_id == workspace_id:
                await self._publish(tick)

    async def _publish(self, tick: Tick) -> Appended:
        due = format_ms(tick.due_ms)
        payload = SweepTicked.model_validate({"sweep": tick.sweep, "due": due})
        return await self._record(tick, payload, "sweep", f"The {tick.sweep} sweep of {due} is due")

    async def _finish_decays(self) -> dict[str, int]:
        """Say for the decay fold what it did, by workspace; the same on every node, for the fold counted it."""
        rows = await asyncio.to_thread(self._views.rows, _UNFINISHED, [])
        last = 0
        for workspace_id, due_ms, decayed in rows:
            due = format_ms(due_ms)
            payload = SweepFinished(sweep=DECAY, due=due, counts={"decayed": decayed})
            done = await self._record(
                Tick(due_ms, workspace_id, DECAY), payload, "sweep_finished", f"The decay sweep of {due} is done"
            )
            last = max(last, done.seq)
        if last:
            await self._views.wait_for(last, FOLD_WAIT_S, SWEEPS_PROJECTION)
        return {workspace_id: decayed for workspace_id, _, decayed in rows}

    async def _record(self, tick: Tick, payload: ControlPayload, name: str, summary: str) -> Appended:
        cause = f"{tick.workspace_id}/{tick.sweep}/{tick.due_ms}"
        for n in range(ID_TRIES):
            with contextlib.suppress(EntryConflict):
                return await self._journal.record(
                    tick.workspace_id, payload, summary=summary, entry_id=derived_id(name, _ID_VERSION, cause, n)
                )
        raise BrokerUnavailable(
            f"the ids of the {tick.sweep} sweep at {tick.due_ms} are taken in {tick.workspace_id}",
            hint="someone publishes entries with ids that are reserved for the service; revoke their token",
        )


def _told(error: str | None, reasons: bool) -> str | None:
    return error if reasons or error is None else FAILED


def _shown(ms: int | None) -> str | None:
    return None if ms is None else format_ms(ms)
