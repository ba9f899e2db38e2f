"""Publishes a ``sweep.ticked`` when a sweep is due, and those that a downtime missed.

Why ticks are events: decay is a fold and must take its time from the journal; health and index sweeps are reactors that
may run anywhere. This module is the only clock among them.

Invariants: however many nodes keep time, the journal has one tick for each due time (``ticks``); missed ticks come once
each and in order, the newest ``MOST_MISSED`` of each sweep; a workspace's first is the first due time after its first
entry. A decay is finished by its fold, so this module publishes its end: ``sweep.finished`` with the rows it went over, for
the last decay of a workspace (the ones before it in a catching up are superseded by it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import structlog

from ...schemas.errors import CrewJournalError
from ...schemas.events.sweeps import SweepFinished
from ...schemas.operations.sweeps import SweepAnswer, SweepRequest
from ...schemas.sweep_list import ALL_SWEEPS, DECAY, due_times
from ...schemas.timestamps import format_ms, to_ms
from ...schemas.views import (
    DECAYS,
    ENTRIES,
    SWEEPS,
    SWEEPS_PROJECTION,
)
from ..desk import Caller
from ..endings import end_task
from ..node import Node
from .ticks import DueTick, publish_tick, record_tick

POLL_S: Final = 30.0
"""Seconds between looks at the clock; a night's sweep need not start on the second."""
FOLD_WAIT_S: Final = 30.0
"""Seconds to wait until the views have folded a tick."""
AT_ONCE: Final = 8
"""Workspaces whose ticks are published at once; within one they go in order."""
FAILED: Final = "failed; an OWNER or ADMIN sees why"
_BEGUN: Final = (
    f"SELECT workspace_id, min(published_ms) FROM {ENTRIES} WHERE NOT starts_with(workspace_id, '_') GROUP BY ALL"
)
"""When the first entry of each workspace was published; 50 ms of CPU for 2 million entries."""
_LAST: Final = f"SELECT workspace_id, sweep, due_ms FROM {SWEEPS} WHERE due_ms IS NOT NULL"
_UNFINISHED: Final = f"""SELECT d.workspace_id, d.due_ms, d.decayed FROM {DECAYS} d LEFT JOIN {SWEEPS} s
    ON s.workspace_id = d.workspace_id AND s.sweep = '{DECAY.name}' WHERE coalesce(s.finished_due_ms < d.due_ms, true)"""
_SHOWN: Final = f"""SELECT workspace_id, sweep, due_ms, finished_due_ms, finished_ms, counts, error FROM {SWEEPS}
    WHERE $1 IS NULL OR workspace_id = $1 ORDER BY workspace_id, sweep LIMIT 300"""

_log = structlog.get_logger(__name__)


class Sweeps:
    """Keeps time.

    Args:
        node: What use-cases share.
        also: Called at each look, for work that needs no tick.
        poll_s: Seconds between looks at the clock.
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
        """Keep time in the background."""
        self._task = asyncio.create_task(self._run(), name="sweeps")

    async def stop(self) -> None:
        """End; ticks that become due are caught up after the next start."""
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
        """Publish the missed ticks and one that is due now, and wait until it is folded.

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
            BrokerUnavailable: If one could not be recorded; the next look goes on there.
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
                await self.check()
                self._error = None
            except CrewJournalError as error:  # the broker is away or the views are behind: the next look goes on
                if self._error is None:
                    _log.warning("sweeps.not_ticked", error=error.message)
                self._error = error.message
            except Exception:
                _log.exception("sweeps.failed")
            await asyncio.sleep(self._poll_s)

    async def _due(self, now_ms: int) -> list[DueTick]:
        """The ticks due since each workspace's last ones, in order of due time."""
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
        """Publish the counts of finished decays by workspace; they are the same on every node, because the fold counts."""
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
