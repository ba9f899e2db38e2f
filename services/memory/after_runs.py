"""Ticks a consolidation of a crew after a run or mission of it completed, at most one in 30 minutes.

Invariant: due times follow from the journal alone, so one tick is recorded however many nodes look; a crew whose
workspace has a consolidation under way is looked at again later, and its 30 minutes do not begin.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from ...schemas.events.sweeps import SweepTicked
from ...schemas.rules.lessons import MISSION, ended_well
from ...schemas.sweep_list import CONSOLIDATION
from ...schemas.timestamps import to_ms
from ...schemas.views import ENTRIES, SWEEPS
from ..node import Node
from .ticks import DueTick, record_tick

RUN: Final = "run.completed"
WINDOW_MS: Final = 30 * 60_000
"""Milliseconds between two consolidations of a crew because of completed runs."""
LOOK_BACK_MS: Final = CONSOLIDATION.schedule.period_ms
"""Milliseconds after which the sweep of the schedule has seen a run."""
_ENDED: Final = f"""SELECT workspace_id, crew_id, entry_type, published_ms,
        CASE WHEN entry_type = '{MISSION}' THEN payload ELSE '{{}}' END FROM {ENTRIES}
    WHERE published_ms > $since AND crew_id IS NOT NULL AND entry_type IN ('{RUN}', '{MISSION}')"""
_TICKED: Final = f"""SELECT workspace_id, published_ms, payload FROM {ENTRIES}
    WHERE published_ms > $since AND control AND entry_type = '{SweepTicked.ENTRY_TYPE}'"""
_RUNNING: Final = f"""SELECT workspace_id FROM {SWEEPS}
    WHERE sweep = '{CONSOLIDATION.name}' AND due_ms IS NOT NULL AND coalesce(finished_due_ms < due_ms, true)"""


class AfterRuns:
    """Looks for completed runs."""

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
        """Crew → when its last run completed; one crew of a workspace at a time."""
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
