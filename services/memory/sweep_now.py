"""A sweep on request: its tick is published with the time it is due now, and its end awaited.

Invariant: who waits learns what the sweep said of itself, or that it has said nothing yet. What a downtime missed is
ticked first: a tick that is due now moves the place from which missed ones are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from ...schemas.errors import Unavailable
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.sweeps import SweepFinished
from ...schemas.operations.sweeps import SweepAnswer, SweepEmbeddingsRequest
from ...schemas.ports import CommittedBatch, ViewReader
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.timestamps import to_ms
from ...schemas.views import ENTRIES, VECTORS_PROJECTION
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from .ticks import Tick, publish_tick

WAIT_S: Final = 25.0
"""Seconds to wait for a sweep's end: less than a client waits for an answer (40), more than a night's health takes."""
_FINISHED: Final = f"""SELECT seq, payload FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ? AND seq > ?
    ORDER BY seq"""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """How a sweep ended: when it was due, what it counted, what kept it from doing all, the sequence of its last word."""

    due: str
    seq: int
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


class SweepNow:
    """Runs sweeps on request.

    Args:
        journal: Records the tick.
        views: Where the end of the sweep shows.
        clock: The time now, UTC.
        catch_up: Ticks what a workspace has missed; ``Sweeps.catch_up``.
        wait_s: Seconds to wait for the end.
    """

    def __init__(
        self,
        journal: Recorder,
        views: ViewReader,
        *,
        clock: Callable[[], datetime],
        catch_up: Callable[[str], Awaitable[None]],
        wait_s: float = WAIT_S,
    ) -> None:
        self._journal = journal
        self._views = views
        self._clock = clock
        self._catch_up = catch_up
        self._wait_s = wait_s

    async def index(self, caller: Caller, asked: SweepEmbeddingsRequest) -> SweepAnswer:
        """Run the index sweep and say what it did."""
        report = await self.run(caller.workspace_id, "index", VECTORS_PROJECTION)
        return SweepAnswer(
            workspace_id=caller.workspace_id,
            sweep="index",
            due=report.due,
            seq=report.seq,
            counts=dict(report.counts),
            error=report.error,
        )

    async def run(self, workspace_id: str, sweep: str, *needs: str) -> SweepReport:
        """Tick after what was missed, and wait until the sweep has finished and the named projections (all if none) show it.

        Raises:
            BrokerUnavailable: If a tick was not acked.
            Unavailable: If the sweep does not end in time; it goes on all the same.
        """
        await self._catch_up(workspace_id)
        tick = Tick(to_ms(self._clock()), workspace_id, sweep)
        moved = asyncio.Event()

        def heed(batch: CommittedBatch) -> None:
            if any(_is_finish(event, workspace_id) for event in batch.entries):
                moved.set()

        unsubscribe = self._views.subscribe(heed)
        try:
            ticked = await publish_tick(self._journal, tick)
            report = await self._finish(workspace_id, sweep, tick.due, ticked.seq, moved)
        finally:
            unsubscribe()
        await self._views.wait_for(report.seq, MIN_SEQ_WAIT_S, *needs)
        return report

    async def _finish(self, workspace_id: str, sweep: str, due: str, after: int, moved: asyncio.Event) -> SweepReport:
        try:
            async with asyncio.timeout(self._wait_s):
                while True:
                    await moved.wait()
                    moved.clear()
                    if (report := await self._report(workspace_id, sweep, due, after)) is not None:
                        return report
        except TimeoutError:
            if (report := await self._report(workspace_id, sweep, due, after)) is not None:
                return report  # a view that caught up on its own tells nobody
        raise Unavailable(
            f"the {sweep} sweep of {due} has not finished within {self._wait_s:g} s",
            hint="it goes on; ask again later, and see the reactors in `crew-journal status`",
        )

    async def _report(self, workspace_id: str, sweep: str, due: str, after: int) -> SweepReport | None:
        named = [workspace_id, SweepFinished.ENTRY_TYPE, after]
        for seq, payload in await asyncio.to_thread(self._views.rows, _FINISHED, named):
            said: dict[str, Any] = orjson.loads(payload)
            if said.get("sweep") == sweep and said.get("due") == due:
                return SweepReport(due, int(seq), said.get("counts") or {}, said.get("error"))
        return None


def _is_finish(event: EntryRecorded, workspace_id: str) -> bool:
    return event.control and event.workspace_id == workspace_id and event.entry.entry_type == SweepFinished.ENTRY_TYPE
