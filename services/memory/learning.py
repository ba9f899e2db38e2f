"""The use-cases of what crews learn: ask for a consolidation, list rules, add lessons.

Invariant: a workspace has one consolidation at a time; AGENT and LEAD see the rules of their own crew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from ...schemas.errors import ConsolidationRunning, FieldProblem, InvalidRequest, NotAllowed
from ...schemas.events.learning import LessonRecorded
from ...schemas.events.sweeps import SweepTicked
from ...schemas.ids import mint_entry_id
from ...schemas.operations.learning import (
    AddLessonRequest,
    ConsolidateRequest,
    ConsolidationAnswer,
    LearnedRulesAnswer,
    LearnedRuleShown,
    LearnedRulesRequest,
    LessonAnswer,
)
from ...schemas.ports import ViewReader
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.timestamps import format_ms, to_ms
from ...schemas.views import LEARNING_PROJECTION, SWEEPS, SWEEPS_PROJECTION
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from .learned import Learned
from .ticks import Tick, record_tick

CONSOLIDATION: Final = "consolidation"
_HOUR_MS: Final = 3_600_000
_UNITS_MS: Final = {"h": _HOUR_MS, "d": 24 * _HOUR_MS, "w": 7 * 24 * _HOUR_MS}
_RUNNING: Final = f"""SELECT due_ms FROM {SWEEPS} WHERE workspace_id = ? AND sweep = '{CONSOLIDATION}'
    AND due_ms IS NOT NULL AND coalesce(finished_due_ms < due_ms, true)"""


class Learning:
    """The use-cases.

    Args:
        journal: Records ticks and lessons.
        views: The views.
        clock: The time now, UTC.
        catch_up: Ticks what a workspace has missed; ``Sweeps.catch_up``.
    """

    def __init__(
        self,
        journal: Recorder,
        views: ViewReader,
        *,
        clock: Callable[[], datetime],
        catch_up: Callable[[str], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._views = views
        self._clock = clock
        self._catch_up = catch_up
        self._learned = Learned(views)
        self._turn = asyncio.Lock()

    async def consolidate(self, caller: Caller, asked: ConsolidateRequest) -> ConsolidationAnswer:
        """Record that a consolidation is due now.

        Raises:
            ConsolidationRunning: If one of the workspace has not finished.
            BrokerUnavailable: If it could not be recorded.
        """
        workspace_id = caller.workspace_id
        async with self._turn:
            await self._catch_up(workspace_id)
            running = await asyncio.to_thread(self._views.rows, _RUNNING, [workspace_id])
            if running:
                raise ConsolidationRunning(
                    f"the consolidation of {format_ms(running[0][0])} has not finished",
                    hint="ask again when it has; `crew-journal status` shows the sweeps",
                )
            tick = Tick(to_ms(self._clock()), workspace_id, CONSOLIDATION)
            since = format_ms(tick.due_ms - int(asked.since[:-1]) * _UNITS_MS[asked.since[-1]])
            payload = SweepTicked(sweep="consolidation", due=tick.due, crew_id=asked.crew_id, since=since)
            of = f"crew {asked.crew_id}" if asked.crew_id is not None else "all crews"
            recorded = await record_tick(
                self._journal, tick, payload, "consolidation", f"A consolidation of {of} is due, since {since}"
            )
            await self._views.wait_for(recorded.seq, MIN_SEQ_WAIT_S, SWEEPS_PROJECTION)
        return ConsolidationAnswer(
            workspace_id=workspace_id, crew_id=asked.crew_id, due=tick.due, since=since, seq=recorded.seq
        )

    async def rules(self, caller: Caller, asked: LearnedRulesRequest) -> LearnedRulesAnswer:
        """The rules of a crew; of all crews for an operator who names none.

        Raises:
            NotAllowed: If AGENT or LEAD names another crew than the token's.
        """
        own = caller.principal.crew_id
        if not caller.administers and asked.crew_id not in (None, own):
            raise NotAllowed(
                "the token is bound to another crew_id",
                hint="leave crew_id out, or use that crew's token",
                field="crew_id",
            )
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        crew_id = asked.crew_id or own
        if crew_id is None and not caller.administers:
            return LearnedRulesAnswer(rules=(), view_seq=view_seq)
        found = await asyncio.to_thread(self._learned.rows, caller.workspace_id, crew_id)
        return LearnedRulesAnswer(
            rules=tuple(
                LearnedRuleShown(
                    rule_id=row.rule_id,
                    crew_id=row.crew_id,
                    pattern=row.pattern,
                    action=row.action,
                    confidence=row.confidence,
                    evidence=tuple(json.loads(row.evidence)),
                    days=row.days,
                    promoted=promoted,
                    learned_at=format_ms(row.learned_ms),
                )
                for row, promoted in found
                if row.finding is None or caller.administers
            ),
            view_seq=view_seq,
        )

    async def add_lesson(self, caller: Caller, asked: AddLessonRequest) -> LessonAnswer:
        """Record a lesson; returns when it can be read.

        Raises:
            InvalidRequest: If neither a crew nor an agent is named.
        """
        if asked.crew_id is None and asked.agent_id is None:
            raise InvalidRequest((FieldProblem("crew_id", "is missing", "name crew_id, or agent_id"),))
        lesson_id = asked.lesson_id or mint_entry_id(to_ms(self._clock()))
        lesson = LessonRecorded(
            lesson_id=lesson_id, kind=asked.kind, source=asked.source, rule=asked.rule, context=asked.context
        )
        recorded = await self._journal.record(
            caller.workspace_id,
            lesson,
            summary=" ".join(asked.rule.split()),
            **caller.actor_fields,
            crew_id=asked.crew_id,
            agent_id=asked.agent_id,
        )
        await self._views.wait_for(recorded.seq, MIN_SEQ_WAIT_S, LEARNING_PROJECTION)
        return LessonAnswer(lesson_id=lesson_id, entry_id=recorded.id, seq=recorded.seq)
