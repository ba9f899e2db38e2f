"""Measures how healthy each memory is when a health sweep is due, and records it.

Invariant: one ``memory.health_recorded`` a tick for the workspace and for each crew with embeddable entries, its id derived
from the tick, its time the tick's ``due``; what the embedder suffers from counts only if it suffered then.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from ...schemas.entry import Severity
from ...schemas.events.derived import OutgoingMessage
from ...schemas.events.health import HealthRecorded
from ...schemas.ids import derived_id
from ...schemas.rules import health
from ...schemas.rules.health import EmbedderFailure
from ...schemas.timestamps import format_ms, parse_ts, to_ms
from ...schemas.views import ENTRIES_PROJECTION, RELATIONS_PROJECTION, VECTORS_PROJECTION
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .health_figures import Measured, measure_workspace

_SEVERITY: Final = {"red": Severity.WARN, "yellow": Severity.NOTICE}
_DATE_CHARS: Final = 10
"""``YYYY-MM-DD`` of a stored time, which is UTC."""


class HealthReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the health sweep."""

    name: ClassVar[str] = "health"
    version: ClassVar[int] = 1
    sweep: ClassVar[str] = "health"
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, VECTORS_PROJECTION, RELATIONS_PROJECTION)

    async def work(self, tick: Tick) -> Swept:
        """Measure, judge, record."""
        measured = await asyncio.to_thread(measure_workspace, self._views, tick.workspace_id, tick.seq, tick.due_ms)
        trouble = at_that_time(self._context.embedder_trouble(measured[0].figures.model), tick.due_ms)
        counts = {"measured": len(measured), "red": 0, "yellow": 0, "green": 0, "no_data": 0}
        for figures in measured:
            recorded = judged(figures, tick, trouble)
            counts[recorded.band or "no_data"] += 1
            await self.publish(self._fact(recorded, tick))
        return Swept(counts)

    def _fact(self, recorded: HealthRecorded, tick: Tick) -> OutgoingMessage:
        cause = f"{tick.workspace_id}/{tick.entry_id}"
        subject = f"crew {recorded.crew_id}" if recorded.crew_id is not None else "the workspace"
        result = "no data" if recorded.band is None else f"{recorded.band}, {recorded.score:.1f} of 100"
        return encode_control(
            tick.workspace_id,
            recorded,
            fact_id=derived_id(self.name, self.version, cause, f"crew/{recorded.crew_id or ''}"),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=f"memory health of {subject}: {result}",
            severity=_SEVERITY.get(recorded.band or "", Severity.INFO),
            ts_ms=tick.due_ms,
            crew_id=recorded.crew_id,
        )


def at_that_time(trouble: EmbedderFailure | None, due_ms: int) -> EmbedderFailure | None:
    """The trouble if it had begun by then; a sweep of an earlier night leaves out later trouble."""
    if trouble is None or (trouble.since and to_ms(parse_ts(trouble.since)) > due_ms):
        return None
    return trouble


def judged(measured: Measured, tick: Tick, trouble: EmbedderFailure | None) -> HealthRecorded:
    """The event about a crew or workspace."""
    figures, legacy = measured.figures, health.measure_legacy(measured.legacy)
    verdict = health.judge(figures, trouble)
    return HealthRecorded(
        crew_id=measured.crew_id,
        date=format_ms(tick.due_ms)[:_DATE_CHARS],
        rules=health.VERSION,
        metrics=health.measure(figures),
        score=verdict.score,
        band=verdict.band,
        legacy=legacy,
        legacy_score=health.composite(legacy),
        reasons=verdict.reasons,
        next_step=verdict.next_step,
        counts={
            "embeddable": figures.embeddable,
            "indexed": figures.indexed,
            "refused": figures.refused,
            "missing": figures.missing,
            "embeddings": figures.embeddings,
            "linked": figures.linked,
            "searches": figures.searches,
            "contradictions": figures.contradictions,
            "similar": measured.legacy.similar,
            "entries": measured.legacy.live,
            "entries_day": measured.legacy.last_day,
            "entries_week": measured.legacy.last_week,
            "types_month": measured.legacy.types,
            "archived": measured.legacy.archived,
        },
        model=figures.model,
    )


REACTOR: Final = HealthReactor.create
