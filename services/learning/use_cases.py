"""The use-cases of what crews learn: ask for a consolidation, list rules, add lessons.

Invariant: a workspace has one consolidation at a time; AGENT and LEAD see the rules of their own crew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Final

from ...schemas.access.tables import AGENTS, CREWS
from ...schemas.core.errors import ConsolidationRunning, FieldProblem, InvalidRequest, NotAllowed, NotFound
from ...schemas.core.ids import derived_id, mint_entry_id
from ...schemas.core.principal import Role
from ...schemas.core.sequence_set import SequenceSet
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.entries.tables import ENTRIES
from ...schemas.learning import operations as ops
from ...schemas.learning.consolidation import MIN_ENTRIES
from ...schemas.learning.events import LessonRecorded
from ...schemas.learning.lessons import Lesson
from ...schemas.learning.tables import LEARNING_PROJECTION, LESSONS
from ...schemas.standing.events import RetractionMade
from ...schemas.standing.tables import RETRACTIONS, STANDINGS_PROJECTION
from ...schemas.sweeps.events import SweepTicked
from ...schemas.sweeps.rules import CONSOLIDATION
from ...schemas.sweeps.tables import SWEEPS, SWEEPS_PROJECTION
from ..desk import Caller
from ..documents.addressing import check_own
from ..documents.learned import Learned
from ..node import Answers, Node
from ..sweeps.scheduler import DueTick, Sweeps, record_tick
from ..sweeps.use_cases import reported

WAIT_S: Final = 2.0
"""Seconds that a request waits for the end of its consolidation: a person waits for the answer, and a run with a chat
model takes longer anyway.
"""
_HOUR_MS: Final = 3_600_000
_UNITS_MS: Final = {"h": _HOUR_MS, "d": 24 * _HOUR_MS, "w": 7 * 24 * _HOUR_MS}
_RUNNING: Final = f"""SELECT due_ms FROM {SWEEPS} WHERE workspace_id = ? AND sweep = '{CONSOLIDATION.name}'
    AND due_ms IS NOT NULL AND coalesce(finished_due_ms < due_ms, true)"""

_CREW: Final = f"""SELECT 1 FROM {CREWS} WHERE workspace_id = $1 AND crew_id = $2
    UNION ALL SELECT 1 FROM {AGENTS} WHERE workspace_id = $1 AND crew_id = $2
    UNION ALL SELECT 1 FROM {ENTRIES} WHERE workspace_id = $1 AND crew_id = $2 LIMIT 1"""

_RECORDED: Final = f"""SELECT entry_id, seq, kind, source, rule, context, EXISTS (SELECT 1 FROM {RETRACTIONS} x
        WHERE x.workspace_id = l.workspace_id AND x.kind = 'entry' AND x.{PRESENT} AND x.target_id = l.entry_id)
    FROM {LESSONS} l WHERE workspace_id = ? AND owner = ? AND lesson_id = ? ORDER BY seq DESC LIMIT 1"""
"""The last recording of a lesson, and whether it is retracted."""


class Learning:
    """The use-cases.

    Args:
        node: What use-cases share.
        wait_s: Seconds to wait for the end of a consolidation.
    """

    def __init__(self, node: Node, *, wait_s: float = WAIT_S) -> None:
        self._node = node
        self._views = node.views
        self._wait_s = wait_s
        self._learned = Learned(node.views)
        self._unseen: dict[tuple[str, str, str], tuple[LessonRecorded, ops.LessonAnswer]] = {}
        self._turn = asyncio.Lock()

    async def consolidate(self, caller: Caller, request: ops.ConsolidateRequest) -> ops.ConsolidationAnswer:
        """Record that a consolidation is due now, and wait briefly for its end.

        Raises:
            NotFound: If the crew is not registered and has no entries.
            ConsolidationRunning: If a consolidation of the workspace has not finished.
            BrokerUnavailable: If it could not be recorded.
        """
        workspace_id = caller.workspace_id
        if request.crew_id is not None and not await asyncio.to_thread(self._knows_crew, workspace_id, request.crew_id):
            raise NotFound(
                f"no crew {request.crew_id} in workspace {workspace_id}",
                hint="name a crew that is registered or has entries (`crew-journal crew list`)",
                field="crew_id",
            )
        async with self._turn:
            await self._node.use(Sweeps).catch_up(workspace_id)
            running = await asyncio.to_thread(self._views.rows, _RUNNING, [workspace_id])
            if running:
                raise ConsolidationRunning(
                    f"the consolidation of {format_ms(running[0][0])} has not finished",
                    hint="ask again when it has; `crew-journal status` shows the sweeps",
                )
            tick = DueTick(to_ms(self._node.clock()), workspace_id, CONSOLIDATION.name)
            since = format_ms(tick.due_ms - int(request.since[:-1]) * _UNITS_MS[request.since[-1]])
            payload = SweepTicked(sweep=CONSOLIDATION.name, due=tick.due, crew_id=request.crew_id, since=since)
            of = f"crew {request.crew_id}" if request.crew_id is not None else "all crews"
            recorded = await record_tick(
                self._node.journal, tick, payload, CONSOLIDATION.name, f"A consolidation of {of} is due, since {since}"
            )
            await self._node.shows(recorded.seq, SWEEPS_PROJECTION)
        counts: dict[str, int] | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                counts = (await reported(self._views, tick, recorded.seq)).counts
        return ops.ConsolidationAnswer(
            workspace_id=workspace_id,
            crew_id=request.crew_id,
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

    async def rules(self, caller: Caller, request: ops.LearnedRulesRequest) -> ops.LearnedRulesAnswer:
        """The rules of a crew; for an operator who names no crew, the rules of all crews.

        Raises:
            NotAllowed: If AGENT or LEAD names another crew than the token's.
        """
        own = caller.principal.crew_id
        if not caller.administers and request.crew_id not in (None, own):
            raise NotAllowed(
                "the token is bound to another crew_id",
                hint="leave crew_id out, or use that crew's token",
                field="crew_id",
            )
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        crew_id = request.crew_id or own
        if crew_id is None and not caller.administers:
            return ops.LearnedRulesAnswer(rules=(), view_seq=view_seq)
        rows = await asyncio.to_thread(self._learned.rows, caller.workspace_id, crew_id)
        return ops.LearnedRulesAnswer(
            rules=tuple(
                ops.LearnedRuleShown(
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
                    state=state,
                )
                for row, promoted, state in rows
                if row.finding is None or caller.administers
            ),
            view_seq=view_seq,
        )

    async def lessons(self, caller: Caller, request: ops.LessonsRequest) -> ops.LessonsAnswer:
        """The lessons of a crew and of an agent; for an operator who names neither, all lessons.

        Raises:
            NotAllowed: If AGENT or LEAD names another crew or agent than the token's.
        """
        check_own(caller, request)
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        named = (
            (Scope.CREW, request.crew_id or caller.principal.crew_id),
            (Scope.AGENT, request.agent_id or caller.principal.agent_id),
        )
        owners = [owner_of(scope, name) for scope, name in named if name is not None]
        if not owners and caller.administers:
            owners = await asyncio.to_thread(self._learned.lesson_owners, caller.workspace_id)
        found: list[tuple[str, Lesson]] = []
        for owner in owners:
            lessons = await asyncio.to_thread(self._learned.lessons, caller.workspace_id, owner)
            found += [(owner, lesson) for lesson in lessons if lesson.finding is None or caller.administers]
        found.sort(key=lambda of_owner: -of_owner[1].captured_ms)
        return ops.LessonsAnswer(
            lessons=tuple(
                ops.LessonShown(
                    lesson_id=lesson.lesson_id,
                    owner=owner,
                    kind=lesson.kind,
                    rule=lesson.rule,
                    context=lesson.context,
                    source=lesson.source,
                    author=lesson.author,
                    captured_at=format_ms(lesson.captured_ms),
                )
                for owner, lesson in found
            ),
            view_seq=view_seq,
        )

    async def add_lesson(self, caller: Caller, request: ops.AddLessonRequest) -> ops.LessonAnswer:
        """Record a lesson, unless the lesson with its id is already the same; an earlier version no longer counts.

        Raises:
            InvalidRequest: If neither a crew nor an agent is named.
            NotAllowed: If AGENT names a crew or another agent, or LEAD another crew or agent.
        """
        request = _addressed(caller, request)
        workspace_id = caller.workspace_id
        lesson_id = request.lesson_id or mint_entry_id(to_ms(self._node.clock()))
        lesson = LessonRecorded(
            lesson_id=lesson_id, kind=request.kind, source=request.source, rule=request.rule, context=request.context
        )
        crew_id, agent_id = request.crew_id, request.agent_id
        owner = owner_of(Scope.AGENT, agent_id) if crew_id is None else owner_of(Scope.CREW, crew_id)
        known = await asyncio.to_thread(self._views.rows, _RECORDED, [workspace_id, owner, lesson_id])
        last_seq = int(known[0][1]) if known else 0
        unseen = self._unseen.pop((workspace_id, owner, lesson_id), None)
        if unseen is not None and unseen[1].seq > last_seq:
            if unseen[0] == lesson:
                self._unseen[workspace_id, owner, lesson_id] = unseen
                return unseen[1]
            last_seq = unseen[1].seq
        elif known:
            entry_id, _, *recorded, retracted = known[0]
            if not retracted and recorded == [lesson.kind, lesson.source, lesson.rule, lesson.context]:
                return ops.LessonAnswer(lesson_id=lesson_id, entry_id=entry_id, seq=last_seq)
        cause = f"{workspace_id}/{owner}/{agent_id}/{caller.actor}/{last_seq}/{lesson.model_dump_json()}"
        decided = await self._node.decide(
            caller,
            lesson,
            " ".join(request.rule.split()),
            LEARNING_PROJECTION,
            entry_id=None if request.lesson_id is None else derived_id("lesson", 1, cause),
            crew_id=crew_id,
            agent_id=agent_id,
        )
        if known and not known[0][-1] and not decided.duplicate:
            replaced = RetractionMade(
                targets=SequenceSet(sequences=str(last_seq), ids=(known[0][0],)),
                stale=True,
                superseded_by=decided.id,
                reason="the lesson was replaced",
            )
            await self._node.decide(
                caller, replaced, f"{known[0][0]} is replaced", STANDINGS_PROJECTION, crew_id=crew_id, agent_id=agent_id
            )
        answer = ops.LessonAnswer(lesson_id=lesson_id, entry_id=decided.id, seq=decided.seq, visible=decided.visible)
        if not decided.visible:
            self._unseen[workspace_id, owner, lesson_id] = lesson, answer
        return answer


def _addressed(caller: Caller, request: ops.AddLessonRequest) -> ops.AddLessonRequest:
    """The request with its crew or agent; see ``AddLessonRequest``."""
    own = caller.principal
    if caller.administers:
        if request.crew_id is None and request.agent_id is None:
            raise InvalidRequest((FieldProblem("crew_id", "is missing", "name crew_id, or agent_id"),))
        return request
    if own.role is Role.AGENT and request.crew_id is not None:
        raise NotAllowed(
            "a lesson of a crew comes from a person or its lead",
            hint="leave crew_id out to add a lesson of your own; rules are learned from what several agents report",
            field="crew_id",
        )
    check_own(caller, request)
    if own.role is Role.LEAD and request.agent_id is None:
        return request.model_copy(update={"crew_id": own.crew_id})
    return request.model_copy(update={"crew_id": None, "agent_id": own.agent_id})


def _skipped(counts: Mapping[str, int]) -> str | None:
    """Why a run left out crews; None if it left out no crew."""
    crews, skipped = counts.get("crews", 0), counts.get("skipped", 0)
    if not crews:
        return "no crew has an entry within the look-back from which rules are learned"
    if skipped == crews == 1:
        candidates = counts.get("candidates", 0)
        return f"{candidates} candidates within the look-back, fewer than {MIN_ENTRIES}, and none of them is permanent"
    few = f"fewer than {MIN_ENTRIES} candidates within the look-back, and none of them is permanent"
    return f"{skipped} of {crews} crews: {few}" if skipped else None


ANSWERS: Final[Answers] = (
    (ops.CONSOLIDATE, Learning.consolidate),
    (ops.LEARNED_RULES, Learning.rules),
    (ops.ADD_LESSON, Learning.add_lesson),
    (ops.LESSONS, Learning.lessons),
)
