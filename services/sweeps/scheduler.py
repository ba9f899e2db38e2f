"""Publishes a ``sweep.ticked`` when a sweep is due, and ticks that were missed during a downtime.

Ticks are events, because decay is a fold and must take its time from the journal, and because health and index sweeps
are reactors that may run anywhere. Only this module reads a clock.

Invariants: with any number of nodes, the journal has one tick for each due time. The newest ``MOST_MISSED``
missed ticks of each sweep are published once and in order. The first tick of a workspace is the first due time after
its first entry. A decay is done by its fold, so this module publishes its end: a ``sweep.finished`` with the number of
processed rows for the last decay of a workspace; earlier decays of a catch-up get none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from ...schemas.core.errors import BrokerUnavailable, CrewJournalError, EntryConflict
from ...schemas.core.ids import SYSTEM_WORKSPACE, derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.entries.tables import ENTRIES
from ...schemas.learning.lessons import MISSION, ended_well
from ...schemas.standing.tables import DECAYS
from ...schemas.sweeps.events import SweepFinished, SweepTicked
from ...schemas.sweeps.operations import SweepAnswer, SweepRequest
from ...schemas.sweeps.rules import ALL_SWEEPS, CONSOLIDATION, DECAY, due_times
from ...schemas.sweeps.tables import SWEEPS, SWEEPS_PROJECTION
from ..desk import Caller
from ..journal.intake.append import Appended, Recorder
from ..node import Node
from ..parts import end_task

# Builds the events of a sweep's tick and all their ids.
#
# Invariant: an id is derived from workspace, sweep and due time, so that the journal has one tick for each due time
# even if several nodes publish it.


ID_TRIES: Final = 4
"""Number of ids that are tried for a tick, because an agent may have used one for its own entry."""
_ID_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DueTick:
    """One due time of one sweep; ``due_ms`` in milliseconds since the epoch."""

    due_ms: int
    workspace_id: str
    sweep: str

    @property
    def due(self) -> str:
        """The due time as it is written in payloads."""
        return format_ms(self.due_ms)


async def publish_tick(journal: Recorder, tick: DueTick) -> Appended:
    """Record that a sweep is due; a repeated tick is recorded once.

    Raises:
        BrokerUnavailable: If no ack came within the bound.
    """
    payload = SweepTicked.model_validate({"sweep": tick.sweep, "due": tick.due})
    return await record_tick(journal, tick, payload, "sweep", f"The {tick.sweep} sweep of {tick.due} is due")


async def record_tick(journal: Recorder, tick: DueTick, payload: ControlPayload, name: str, summary: str) -> Appended:
    """Record an event of a tick, once; ``name`` distinguishes events of the same tick.

    Raises:
        BrokerUnavailable: If no ack came in time, or other entries have used the ids.
    """
    cause = f"{tick.workspace_id}/{tick.sweep}/{tick.due_ms}"
    for n in range(ID_TRIES):
        with contextlib.suppress(EntryConflict):
            return await journal.record(
                tick.workspace_id, payload, summary=summary, entry_id=derived_id(name, _ID_VERSION, cause, n)
            )
    raise BrokerUnavailable(
        f"the ids of the {tick.sweep} sweep at {tick.due_ms} are used by other entries in {tick.workspace_id}",
        hint="a client publishes entries with ids of the service; revoke its token",
    )


POLL_S: Final = 30.0
"""Seconds between checks of the clock; a nightly sweep need not start on the second."""
FOLD_WAIT_S: Final = 30.0
"""Seconds to wait until the views have folded a tick."""
AT_ONCE: Final = 8
"""Number of workspaces whose ticks are published concurrently; ticks of a workspace are published in order."""
FAILED: Final = "failed; an OWNER or ADMIN sees why"
_BEGUN: Final = (
    f"SELECT workspace_id, min(published_ms) FROM {ENTRIES} WHERE NOT starts_with(workspace_id, '_') GROUP BY ALL"
)
"""Query for the time of each workspace's first entry; 50 ms of CPU for 2 million entries."""
_LAST: Final = f"SELECT workspace_id, sweep, due_ms FROM {SWEEPS} WHERE due_ms IS NOT NULL"
_UNFINISHED: Final = f"""SELECT d.workspace_id, d.due_ms, d.decayed FROM {DECAYS} d LEFT JOIN {SWEEPS} s
    ON s.workspace_id = d.workspace_id AND s.sweep = '{DECAY.name}' WHERE coalesce(s.finished_due_ms < d.due_ms, true)"""
_SHOWN: Final = f"""SELECT workspace_id, sweep, due_ms, finished_due_ms, finished_ms, counts, error FROM {SWEEPS}
    WHERE $1 IS NULL OR workspace_id = $1 ORDER BY workspace_id, sweep LIMIT 300"""

_log = structlog.get_logger(__name__)


class Sweeps:
    """Publishes ticks of due sweeps.

    Args:
        node: The shared parts of use-cases.
        also: Called at each check, for work that needs no tick.
        poll_s: Seconds between checks of the clock.
    """

    def __init__(
        self, node: Node, *, also: Callable[[], Awaitable[None]] | None = None, poll_s: float = POLL_S
    ) -> None:
        self._node = node
        self._journal = node.journal
        self._views = node.views
        self._clock = node.clock
        self._also = also
        self._poll_s = poll_s
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._error: str | None = None

    async def start(self) -> None:
        """Start to check the clock in the background."""
        self._task = asyncio.create_task(self._run(), name="sweeps")

    async def stop(self) -> None:
        """End; ticks that become due are caught up after the next start."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    def figures(self, workspace_id: str | None, *, reasons: bool = True) -> dict[str, Any]:
        """Figures for ``status``: last tick and finish of each sweep, of a workspace or of all; blocking.

        Args:
            workspace_id: The workspace; all if None.
            reasons: Whether to include reasons of failures, which may contain addresses that not every token may read.
        """
        rows = self._views.rows(_SHOWN, [workspace_id])
        return {
            "error": _reason(self._error, reasons),
            "sweeps": [
                {
                    "workspace_id": workspace,
                    "sweep": sweep,
                    "due": _time(due),
                    "finished_due": _time(finished_due),
                    "finished_at": _time(finished),
                    "counts": orjson.loads(counts) if counts else {},
                    "error": _reason(error, reasons),
                }
                for workspace, sweep, due, finished_due, finished, counts, error in rows
            ],
        }

    async def run_now(self, caller: Caller, request: SweepRequest) -> SweepAnswer:
        """Publish the missed ticks and a tick that is due now, and wait until it is folded.

        Raises:
            BrokerUnavailable: If the tick could not be recorded.
        """
        workspace_id, sweep = caller.workspace_id, request.sweep
        async with self._turn:
            due_ms = to_ms(self._clock())
            await self._publish_missed(workspace_id, due_ms)
            recorded = await publish_tick(self._journal, DueTick(due_ms, workspace_id, sweep))
            visible = await self._node.shows(recorded.seq, *DECAY.views, wait_s=FOLD_WAIT_S)
            finished = await self._finish_decays() if visible else {}
        decayed = finished.get(workspace_id) if sweep == DECAY.name else None
        counts = {} if decayed is None else {"decayed": decayed}
        return SweepAnswer(
            workspace_id=workspace_id,
            sweep=sweep,
            due=format_ms(due_ms),
            seq=recorded.seq,
            counts=counts,
            visible=visible,
        )

    async def catch_up(self, workspace_id: str) -> None:
        """Publish the ticks that a workspace has missed, so that a tick on request does not skip them.

        Raises:
            BrokerUnavailable: If a tick could not be recorded.
        """
        async with self._turn:
            await self._publish_missed(workspace_id, to_ms(self._clock()))

    async def check(self) -> int:
        """Publish the due ticks; returns how many.

        Raises:
            BrokerUnavailable: If a tick could not be recorded; the next check continues there.
        """
        async with self._turn:
            due = await self._due(to_ms(self._clock()))
            by_workspace: dict[str, list[DueTick]] = {}
            for tick in due:
                by_workspace.setdefault(tick.workspace_id, []).append(tick)
            at_once = asyncio.Semaphore(AT_ONCE)

            async def publish(ticks: list[DueTick]) -> int:
                async with at_once:
                    return [(await publish_tick(self._journal, tick)).seq for tick in ticks][-1]

            if by_workspace:
                last = max(await asyncio.gather(*map(publish, by_workspace.values())))
                _log.info("sweeps.ticked", ticks=len(due), workspaces=len(by_workspace), seq=last)
                await self._views.wait_for(last, FOLD_WAIT_S, *DECAY.views)
            await self._finish_decays()
            if self._also is not None:
                await self._also()
            return len(due)

    async def _run(self) -> None:
        while True:
            try:
                if self._node.ownership.hold(SYSTEM_WORKSPACE):
                    await self.check()
                self._error = None
            except (
                CrewJournalError
            ) as error:  # the broker is unavailable or the views are behind; the next check continues
                if self._error is None:
                    _log.warning("sweeps.not_ticked", error=error.message)
                self._error = error.message
            except Exception:
                _log.exception("sweeps.failed")
            await asyncio.sleep(self._poll_s)

    async def _due(self, now_ms: int) -> list[DueTick]:
        """The ticks that became due since each workspace's last tick, in order of due time."""
        first = await asyncio.to_thread(self._views.rows, _BEGUN, [])
        rows = await asyncio.to_thread(self._views.rows, _LAST, [])
        last = {(workspace, sweep): due_ms for workspace, sweep, due_ms in rows}
        return sorted(
            (
                DueTick(due_ms, workspace, sweep.name)
                for workspace, first_ms in first
                for sweep in ALL_SWEEPS
                for due_ms in due_times(sweep.schedule, last.get((workspace, sweep.name), first_ms), now_ms)
            ),
            key=lambda tick: (tick.due_ms, tick.workspace_id, tick.sweep),
        )

    async def _publish_missed(self, workspace_id: str, now_ms: int) -> None:
        for tick in await self._due(now_ms):
            if tick.workspace_id == workspace_id:
                await publish_tick(self._journal, tick)

    async def _finish_decays(self) -> dict[str, int]:
        """Publish the counts of finished decays by workspace; the fold counts, so that they are the same on every node."""
        rows = await asyncio.to_thread(self._views.rows, _UNFINISHED, [])
        last = 0
        for workspace_id, due_ms, decayed in rows:
            tick = DueTick(due_ms, workspace_id, DECAY.name)
            payload = SweepFinished(sweep=DECAY.name, due=tick.due, counts={"decayed": decayed})
            summary = f"The decay sweep of {tick.due} is done"
            done = await record_tick(self._journal, tick, payload, "sweep_finished", summary)
            last = max(last, done.seq)
        if last:
            await self._node.shows(last, SWEEPS_PROJECTION, wait_s=FOLD_WAIT_S)
        return {workspace_id: decayed for workspace_id, _, decayed in rows}


def _reason(error: str | None, reasons: bool) -> str | None:
    return error if reasons or error is None else FAILED


def _time(ms: int | None) -> str | None:
    return None if ms is None else format_ms(ms)


# Publishes a tick for a consolidation of a crew after one of its runs or missions completed, at most every 30 minutes.


RUN: Final = "run.completed"
WINDOW_MS: Final = 30 * 60_000
"""Milliseconds between two consolidations of a crew because of completed runs."""
LOOK_BACK_MS: Final = CONSOLIDATION.schedule.period_ms
"""Milliseconds after which the scheduled sweep has covered a run."""
_ENDED: Final = f"""SELECT workspace_id, crew_id, entry_type, published_ms,
        CASE WHEN entry_type = '{MISSION}' THEN payload ELSE '{{}}' END FROM {ENTRIES}
    WHERE published_ms > $since AND crew_id IS NOT NULL AND entry_type IN ('{RUN}', '{MISSION}')"""
_TICKED: Final = f"""SELECT workspace_id, published_ms, payload FROM {ENTRIES}
    WHERE published_ms > $since AND control AND entry_type = '{SweepTicked.ENTRY_TYPE}'"""
_RUNNING: Final = f"""SELECT workspace_id FROM {SWEEPS}
    WHERE sweep = '{CONSOLIDATION.name}' AND due_ms IS NOT NULL AND coalesce(finished_due_ms < due_ms, true)"""


class AfterRuns:
    """Publishes ticks after completed runs."""

    def __init__(self, node: Node) -> None:
        self._journal = node.journal
        self._views = node.views
        self._clock = node.clock

    async def check(self) -> int:
        """Publish the due ticks; returns how many.

        Raises:
            BrokerUnavailable: If a tick could not be recorded; the next call tries again.
        """
        due = await asyncio.to_thread(self._due, to_ms(self._clock()))
        for (workspace_id, crew_id), ended_ms in due.items():
            tick = DueTick(ended_ms + 1, workspace_id, CONSOLIDATION.name)
            payload = SweepTicked(sweep=CONSOLIDATION.name, due=tick.due, crew_id=crew_id)
            summary = f"A consolidation of crew {crew_id} is due after a completed run"
            await record_tick(self._journal, tick, payload, f"after_run/{crew_id}", summary)
        return len(due)

    def _due(self, now_ms: int) -> dict[tuple[str, str], int]:
        """Crew → time of its last completed run; one crew per workspace at a time."""
        since = {"since": now_ms - LOOK_BACK_MS}
        ended: dict[tuple[str, str], int] = {}
        for workspace_id, crew_id, entry_type, published_ms, payload in self._views.rows(_ENDED, since):
            if entry_type == RUN or ended_well(json.loads(payload)):
                name = workspace_id, crew_id
                ended[name] = max(published_ms, ended.get(name, 0))
        if not ended:
            return {}
        ticked: dict[tuple[str, str | None], int] = {}
        for workspace_id, published_ms, payload in self._views.rows(_TICKED, since):
            fields: dict[str, Any] = json.loads(payload)
            if fields.get("sweep") == CONSOLIDATION.name:
                of = workspace_id, fields.get("crew_id")
                ticked[of] = max(published_ms, ticked.get(of, 0))
        busy = {workspace_id for (workspace_id,) in self._views.rows(_RUNNING)}
        due = {}
        for (workspace_id, crew_id), ended_ms in sorted(ended.items(), key=lambda item: item[1]):
            last = max(ticked.get((workspace_id, crew_id), 0), ticked.get((workspace_id, None), 0))
            if workspace_id not in busy and last <= min(ended_ms, now_ms - WINDOW_MS):
                busy.add(workspace_id)
                due[workspace_id, crew_id] = ended_ms
        return due
