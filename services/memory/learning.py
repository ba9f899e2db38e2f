"""The use-cases of what crews learn: ask for a consolidation, list rules, add lessons.

Invariant: a workspace has one consolidation at a time; AGENT and LEAD see the rules of their own crew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

from ...schemas.errors import ConsolidationRunning, FieldProblem, InvalidRequest, NotAllowed, NotFound
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
from ...schemas.rules.consolidation import MIN_ENTRIES
from ...schemas.sweep_list import CONSOLIDATION
from ...schemas.timestamps import format_ms, to_ms
from ...schemas.views import ENTRIES, LEARNING_PROJECTION, SWEEPS, SWEEPS_PROJECTION
from ...schemas.views.workspaces import AGENTS, CREWS
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from ..shown import until_shown
from .learned import Learned
from .sweep_now import reported
from .ticks import Tick, record_tick

WAIT_S: Final = 2.0
"""Seconds that a request waits for the end of its consolidation: a person waits for the answer, and a run that asks a chat
model takes longer in any case."""
_HOUR_MS: Final = 3_600_000
_UNITS_MS: Final = {"h": _HOUR_MS, "d": 24 * _HOUR_MS, "w": 7 * 24 * _HOUR_MS}
_RUNNING: Final = f"""SELECT due_ms FROM {SWEEPS} WHERE workspace_id = ? AND sweep = '{CONSOLIDATION.name}'
    AND due_ms IS NOT NULL AND coalesce(finished_due_ms < due_ms, true)"""

_CREW: Final = f"""SELECT 1 FROM {CREWS} WHERE workspace_id = $1 AND crew_id = $2
    UNION ALL SELECT 1 FROM {AGENTS} WHERE workspace_id = $1 AND crew_id = $2
    UNION ALL SELECT 1 FROM {ENTRIES} WHERE workspace_id = $1 AND crew_id = $2 LIMIT 1"""


class Learning:
    """The use-cases.

    Args:
        journal: Records ticks and lessons.
        views: The views.
        clock: The time now, UTC.
        catch_up: Ticks what a workspace has missed; ``Sweeps.catch_up``.
        wait_s: Seconds to wait for the end of a consolidation.
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
        self._learned = Learned(views)
        self._turn = asyncio.Lock()

    async def consolidate(self, caller: Caller, asked: ConsolidateRequest) -> ConsolidationAnswer:
        """Record that a consolidation is due now, and wait a moment for its end.

        Raises:
            NotFound: If no such crew is registered, and no entry is of it.
            ConsolidationRunning: If one of the workspace has not finished.
            BrokerUnavailable: If it could not be recorded.
        """
        workspace_id = caller.workspace_id
        if asked.crew_id is not None and not await asyncio.to_thread(self._knows_crew, workspace_id, asked.crew_id):
            raise NotFound(
                f"no crew {asked.crew_id} in workspace {workspace_id}",
                hint="name a crew that is registered or has entries (`crew-journal crew list`)",
                field="crew_id",
            )
        async with self._turn:
            await self._catch_up(workspace_id)
            running = await asyncio.to_thread(self._views.rows, _RUNNING, [workspace_id])
            if running:
                raise ConsolidationRunning(
                    f"the consolidation of {format_ms(running[0][0])} has not finished",
                    hint="ask again when it has; `crew-journal status` shows the sweeps",
                )
            tick = Tick(to_ms(self._clock()), workspace_id, CONSOLIDATION.name)
            since = format_ms(tick.due_ms - int(asked.since[:-1]) * _UNITS_MS[asked.since[-1]])
            payload = SweepTicked(sweep=CONSOLIDATION.name, due=tick.due, crew_id=asked.crew_id, since=since)
            of = f"crew {asked.crew_id}" if asked.crew_id is not None else "all crews"
            recorded = await record_tick(
                self._journal, tick, payload, CONSOLIDATION.name, f"A consolidation of {of} is due, since {since}"
            )
            await until_shown(self._views, recorded.seq, SWEEPS_PROJECTION)
        counts: dict[str, int] | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                counts = (await reported(self._views, tick, recorded.seq)).counts
        return ConsolidationAnswer(
            workspace_id=workspace_id,
            crew_id=asked.crew_id,
            due=tick.due,
            since=since,
            seq=recorded.seq,
            finished=counts is not None,
            counts=counts or {},
            skipped=None if counts is None else _skipped(counts),
        )

    def _knows_crew(self, workspace_id: str, crew_id: str) -> bool:
        """Blocking."""
        return bool(self._views.rows(_CREW, [workspace_id, crew_id]))

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
                    authors=tuple(json.loads(row.authors)),
                    reviewed=row.proposal_id is not None,
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
        await until_shown(self._views, recorded.seq, LEARNING_PROJECTION)
        return LessonAnswer(lesson_id=lesson_id, entry_id=recorded.id, seq=recorded.seq)


def _skipped(counts: Mapping[str, int]) -> str | None:
    """Why a run left crews out; None if it left out none."""
    crews, skipped = counts.get("crews", 0), counts.get("skipped", 0)
    if not crews:
        return "no crew has an entry within the look-back from which rules are learned"
    if skipped == crews == 1:
        found = counts.get("candidates", 0)
        return f"{found} candidates within the look-back, fewer than {MIN_ENTRIES}, and none of them is permanent"
    few = f"fewer than {MIN_ENTRIES} candidates within the look-back, and none of them is permanent"
    return f"{skipped} of {crews} crews: {few}" if skipped else None
