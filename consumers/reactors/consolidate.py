"""Learns rules from what recurs among a crew's entries when a consolidation is due, and promotes rules that proved useful.

It also promotes what recurs in daily logs and archives old logs (``consolidate_logs``).

A chat model words the rules if there is one; without one, or when it fails, entries whose summaries share much of their
words are rules.

Invariant: a rule is an entry whose evidence exists, each entry once, from two publishers on two days of receipt; everything
else is proposed to a person. Ids follow from the tick and the evidence, so a run that is repeated records nothing twice. No
run reads what runs record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog

from ...schemas.chat import ChatError
from ...schemas.entry import MAX_SUMMARY, Priority, Severity
from ...schemas.events import headers as h
from ...schemas.events.derived import OutgoingMessage
from ...schemas.events.documents import encode_document
from ...schemas.events.learning import MemoryConsolidated, RulePromoted
from ...schemas.events.payload import ControlPayload
from ...schemas.events.proposals import RuleProposed
from ...schemas.ids import derived_id
from ...schemas.rules.consolidation import is_worthwhile
from ...schemas.rules.lessons import rule_summary
from ...schemas.rules.relations import EVIDENCE_REF
from ...schemas.rules.sweeps import SCHEDULES
from ...schemas.views import (
    AGENTS_PROJECTION,
    DOCUMENTS_PROJECTION,
    ENTRIES_PROJECTION,
    LEARNING_PROJECTION,
    NUDGES_PROJECTION,
    RECEIPTS_PROJECTION,
    STANDINGS_PROJECTION,
)
from ..prompts.consolidation import ProposedRules, question
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .consolidate_find import (
    VERSION,
    NewRules,
    learned_of,
    promotion_of,
    proposed_groups,
    recurring_groups,
    skill_of,
    usefulness_of,
)
from .consolidate_logs import LogsFound, consolidated_logs
from .consolidate_reads import (
    KnownRule,
    LearningEntry,
    Search,
    candidates_of,
    crews_of,
    proposals_of,
    reviews_rules,
    rules_of,
    searches_of,
    staged_of,
    types_of,
)

CREWS_AT_ONCE: Final = 4
"""Crews of a workspace that are consolidated at once: a model answers after seconds, and its server queues further
requests."""
WORKSPACES_AT_ONCE: Final = 4
"""Workspaces that are consolidated at once, for the same reason."""
_MODEL_CHARS: Final = 96
"""Characters of a model's name in a rule."""
_DURABLE: Final = "sweep-consolidate-v1"
"""That of version 1, so that the ticks which it has handled do not come again."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """What a run reads of a crew."""

    candidates: Sequence[LearningEntry]
    known: Sequence[KnownRule]
    new: int
    worthwhile: bool


@dataclass(frozen=True, slots=True)
class Proven:
    """Rules that proved useful: promotions, and proposals of the most useful ones as skills."""

    promoted: tuple[RulePromoted, ...]
    skills: tuple[RuleProposed, ...]


@dataclass(frozen=True, slots=True)
class CrewRun:
    """What a run found for a crew; ``model`` is the one that worded the rules, ``error`` why it did not."""

    read: Read
    learned: NewRules
    proven: Proven
    model: str | None
    error: str | None


class ConsolidateReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the consolidation; ``chat`` words the rules."""

    name: ClassVar[str] = "consolidate"
    version: ClassVar[int] = VERSION
    sweep: ClassVar[str] = "consolidation"
    uses_chat = True
    max_ack_pending = WORKSPACES_AT_ONCE
    needs: ClassVar[tuple[str, ...]] = (
        ENTRIES_PROJECTION,
        STANDINGS_PROJECTION,
        RECEIPTS_PROJECTION,
        LEARNING_PROJECTION,
        NUDGES_PROJECTION,
        AGENTS_PROJECTION,
        DOCUMENTS_PROJECTION,
    )

    def _durable_name(self) -> str:
        return _DURABLE

    async def work(self, tick: Tick) -> Swept:
        """Look at each crew with new entries, or at the one that was asked for."""
        since_ms = tick.since_ms if tick.since_ms is not None else tick.due_ms - SCHEDULES[self.sweep].period_ms
        searches = await asyncio.to_thread(searches_of, self._views, tick)
        turns = asyncio.Semaphore(1 if self._chat is None else CREWS_AT_ONCE)

        async def consolidate(crew_id: str) -> CrewRun:
            async with turns:
                result = await self._find(tick, crew_id, since_ms, searches, reviewed=reviewed)
                await self._record(tick, crew_id, result)
                return result

        reviewed = await asyncio.to_thread(reviews_rules, self._views, tick.workspace_id)
        logs = LogsFound() if reviewed else await self._consolidate_logs(tick, since_ms)
        crews = await asyncio.to_thread(crews_of, self._views, tick, since_ms)
        results = await asyncio.gather(*map(consolidate, crews))
        counts = {
            "crews": len(results),
            "skipped": sum(not result.read.worthwhile for result in results),
            "candidates": sum(result.read.new for result in results),
            "learned": sum(len(result.learned.rules) for result in results),
            "proposed": sum(len(result.learned.proposals) for result in results),
            "confirmed": sum(len(result.learned.confirmed) for result in results),
            "promoted": sum(len(result.proven.promoted) for result in results),
            "skills": sum(len(result.proven.skills) for result in results),
            "notes_promoted": logs.promoted,
            "notes_left": logs.left,
            "logs_archived": logs.archived,
        }
        return Swept(counts, next((result.error for result in results if result.error), None))

    async def _consolidate_logs(self, tick: Tick, since_ms: int) -> LogsFound:
        logs = await asyncio.to_thread(consolidated_logs, self._views, tick, since_ms)
        for write in logs.writes:
            await self.publish(encode_document(write))
        return logs

    async def _find(
        self, tick: Tick, crew_id: str, since_ms: int, searches: Sequence[Search], *, reviewed: bool
    ) -> CrewRun:
        read = await asyncio.to_thread(self._read, tick, crew_id, since_ms)
        groups, model, error = [], None, None
        if read.worthwhile and self._chat is not None:
            prompt = question([(candidate.entry_type, candidate.summary) for candidate in read.candidates])
            try:
                answer = await self._chat.complete(
                    tick.workspace_id, self.sweep, prompt, ProposedRules, crew_id=crew_id
                )
                groups = proposed_groups(answer, read.candidates)
                model = self._chat.model_id[:_MODEL_CHARS]
            except ChatError as failure:
                _log.warning("consolidate.no_model", model=self._chat.model_id, error=type(failure).__name__)
                error = f"rules were found by recurrence: {failure}"
        if read.worthwhile and model is None:
            groups = await asyncio.to_thread(recurring_groups, read.candidates)
        learned = learned_of(crew_id, tick, groups, read.candidates, read.known, model, reviewed=reviewed)
        proven = await asyncio.to_thread(self._proven, tick, crew_id, read.known, searches)
        return CrewRun(read, learned, proven, model, error)

    def _read(self, tick: Tick, crew_id: str, since_ms: int) -> Read:
        candidates = candidates_of(self._views, tick, crew_id, since_ms)
        new = [candidate for candidate in candidates if candidate.is_new]
        worthwhile = is_worthwhile(len(new), permanent=any(candidate.is_permanent for candidate in new))
        known = proposals_of(self._views, tick, crew_id) + rules_of(self._views, tick, crew_id)
        return Read(candidates, known, len(new), worthwhile)

    def _proven(self, tick: Tick, crew_id: str, known: Sequence[KnownRule], searches: Sequence[Search]) -> Proven:
        evidence = sorted({entry_id for rule in known for entry_id in rule.evidence})
        types = types_of(self._views, tick.workspace_id, evidence)
        staged = staged_of(self._views, tick, crew_id)
        measured = [(rule, usefulness_of(rule, types, searches, tick)) for rule in known]
        return Proven(
            promoted=tuple(filter(None, (promotion_of(rule, usefulness) for rule, usefulness in measured))),
            skills=tuple(filter(None, (skill_of(crew_id, rule, usefulness, staged) for rule, usefulness in measured))),
        )

    async def _record(self, tick: Tick, crew_id: str, result: CrewRun) -> None:
        rules: list[str] = []
        proposals: list[str] = []
        evidence: list[str] = []
        for name, rule in result.learned.rules.items():
            fact = self._fact(
                tick,
                crew_id,
                rule,
                f"rule/{name}",
                rule_summary(rule.pattern, rule.authors),
                severity=Severity.NOTICE,
                priority=Priority.HIGH,
                refs=_of_evidence(rule.evidence),
            )
            await self.publish(fact)
            rules.append(fact.headers[h.ENTRY_ID])
            evidence += rule.evidence
        for name, proposal in result.learned.proposals.items():
            summary = f"Proposed: {proposal.pattern}"
            refs = _of_evidence(proposal.evidence)
            fact = self._fact(tick, crew_id, proposal, f"rule/{name}", summary, refs=refs)
            await self.publish(fact)
            proposals.append(fact.headers[h.ENTRY_ID])
            evidence += proposal.evidence
        for promotion in result.proven.promoted:
            summary = f"The rule {promotion.rule_id} proved useful: score {promotion.score:.2f}"
            await self.publish(self._fact(tick, crew_id, promotion, f"promoted/{promotion.rule_id}", summary))
        for skill in result.proven.skills:
            refs = {EVIDENCE_REF: list(skill.evidence), "derived_from": [str(skill.skill_of)]}
            summary = f"Proposed as a skill: {skill.pattern}"
            await self.publish(self._fact(tick, crew_id, skill, f"skill/{skill.skill_of}", summary, refs=refs))
        if not result.read.worthwhile:
            return
        run = MemoryConsolidated(
            crew_id=crew_id,
            rules_count=len(rules),
            rules=tuple(rules),
            proposed=tuple(proposals),
            confirmed=result.learned.confirmed,
            promoted=tuple(rule.rule_id for rule in result.proven.promoted),
            candidates=len(result.read.candidates),
            entries_scanned=result.read.new,
            model=result.model,
        )
        counts = f"{len(rules)} rules learned, {len(proposals)} proposed"
        summary = f"Consolidation of crew {crew_id}: {counts} from {result.read.new} entries"
        severity = Severity.NOTICE if rules or proposals else Severity.INFO
        refs = {"source_entry_ids": list(dict.fromkeys(evidence))}
        await self.publish(self._fact(tick, crew_id, run, "run", summary, severity=severity, refs=refs))

    def _fact(
        self,
        tick: Tick,
        crew_id: str,
        payload: ControlPayload,
        name: str,
        summary: str,
        *,
        severity: Severity = Severity.INFO,
        priority: Priority = Priority.NORMAL,
        refs: dict[str, list[str]] | None = None,
    ) -> OutgoingMessage:
        return encode_control(
            tick.workspace_id,
            payload,
            fact_id=derived_id(self.name, self.version, f"{tick.workspace_id}/{tick.entry_id}", f"{crew_id}/{name}"),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=summary[:MAX_SUMMARY],
            severity=severity,
            ts_ms=tick.due_ms,
            crew_id=crew_id,
            priority=priority,
            refs=refs,
        )


def _of_evidence(evidence: tuple[str, ...]) -> dict[str, list[str]]:
    return {EVIDENCE_REF: list(evidence), "source_entry_ids": list(evidence)}


REACTOR: Final = ConsolidateReactor.create
