"""Learns rules from what recurs among a crew's entries when a consolidation is due, and promotes rules that proved useful.

Invariant: a rule is an entry whose evidence exists, each entry once; ids follow from the tick, so a run that is repeated
records nothing twice. No run reads what runs record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from Stemmer import Stemmer

from ...schemas.entry import MAX_SUMMARY, Priority, Severity
from ...schemas.events import headers as h
from ...schemas.events.derived import OutgoingMessage
from ...schemas.events.learning import MemoryConsolidated, RuleLearned, RulePromoted
from ...schemas.events.payload import ControlPayload
from ...schemas.ids import derived_id
from ...schemas.rules.consolidation import (
    REPEAT_DAYS,
    Usefulness,
    is_promoted,
    is_worthwhile,
    normalised,
    score,
)
from ...schemas.rules.recurrence import Occurrence, Recurrence, recurrences
from ...schemas.rules.relations import EVIDENCE_REF
from ...schemas.rules.sweeps import SCHEDULES
from ...schemas.rules.text import Analyzer, tokens_of
from ...schemas.views import (
    ENTRIES_PROJECTION,
    LEARNING_PROJECTION,
    RECEIPTS_PROJECTION,
    STANDINGS_PROJECTION,
)
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick
from ..reactor import Reactor, ReactorContext
from .consolidate_reads import (
    DAY_MS,
    Candidate,
    KnownRule,
    Search,
    candidates_of,
    crews_of,
    rules_of,
    searches_of,
    types_of,
)

_ACTIONS: Final = ("resolution", "fix", "recommendation", "answer", "reason")
"""Fields of a payload that say what to do, the best first."""
_TEXT_CHARS: Final = 500
"""Characters of a pattern or action."""
_SAME_EVIDENCE: Final = 0.5
"""Share of the smaller evidence from which two findings are the same."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run found for a crew."""

    scanned: int
    candidates: int
    worthwhile: bool
    learned: tuple[RuleLearned, ...]
    typical: tuple[str, ...]
    confirmed: tuple[str, ...]
    promoted: tuple[RulePromoted, ...]


class ConsolidateReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the consolidation."""

    name: ClassVar[str] = "consolidate"
    version: ClassVar[int] = 1
    sweep: ClassVar[str] = "consolidation"
    needs: ClassVar[tuple[str, ...]] = (
        ENTRIES_PROJECTION,
        STANDINGS_PROJECTION,
        RECEIPTS_PROJECTION,
        LEARNING_PROJECTION,
    )

    async def work(self, tick: Tick) -> Swept:
        """Look at each crew with new entries, or at the one that was asked for."""
        since_ms = tick.since_ms if tick.since_ms is not None else tick.due_ms - SCHEDULES[self.sweep].period_ms
        counts = {"crews": 0, "skipped": 0, "learned": 0, "confirmed": 0, "promoted": 0}
        searches = await asyncio.to_thread(searches_of, self._views, tick)
        for crew_id in await asyncio.to_thread(crews_of, self._views, tick, since_ms):
            found = await asyncio.to_thread(self._find, tick, crew_id, since_ms, searches)
            counts["crews"] += 1
            counts["skipped"] += not found.worthwhile
            counts["learned"] += len(found.learned)
            counts["confirmed"] += len(found.confirmed)
            counts["promoted"] += len(found.promoted)
            await self._record(tick, crew_id, found)
        return Swept(counts)

    def _find(self, tick: Tick, crew_id: str, since_ms: int, searches: Sequence[Search]) -> Found:
        candidates = candidates_of(self._views, tick, crew_id, since_ms)
        new = [one for one in candidates if one.is_new]
        known = rules_of(self._views, tick, crew_id)
        worthwhile = is_worthwhile(len(new), permanent=any(one.is_permanent for one in new))
        learned, typical, confirmed = _learned(crew_id, tick, candidates, known) if worthwhile else ((), (), ())
        evidence = sorted({entry_id for rule in known for entry_id in rule.evidence})
        types = types_of(self._views, tick.workspace_id, evidence)
        promoted = tuple(filter(None, (_promotion(rule, types, searches, tick) for rule in known)))
        return Found(len(new), len(candidates), worthwhile, learned, typical, confirmed, promoted)

    async def _record(self, tick: Tick, crew_id: str, found: Found) -> None:
        ids: list[str] = []
        evidence: list[str] = []
        for rule, typical in zip(found.learned, found.typical, strict=True):
            fact = self._fact(
                tick,
                crew_id,
                rule,
                f"rule/{typical}",
                f"Learned: {rule.pattern}",
                severity=Severity.NOTICE,
                priority=Priority.HIGH,
                refs={EVIDENCE_REF: list(rule.evidence), "source_entry_ids": list(rule.evidence)},
            )
            await self.publish(fact)
            ids.append(fact.headers[h.ENTRY_ID])
            evidence += rule.evidence
        for promotion in found.promoted:
            said = f"The rule {promotion.rule_id} proved useful: score {promotion.score:.2f}"
            await self.publish(self._fact(tick, crew_id, promotion, f"promoted/{promotion.rule_id}", said))
        if not found.worthwhile:
            return
        run = MemoryConsolidated(
            crew_id=crew_id,
            rules_count=len(ids),
            rules=tuple(ids),
            confirmed=found.confirmed,
            promoted=tuple(one.rule_id for one in found.promoted),
            candidates=found.candidates,
            entries_scanned=found.scanned,
        )
        said = f"Consolidation of crew {crew_id}: {len(ids)} rules learned from {found.scanned} entries"
        severity = Severity.NOTICE if ids else Severity.INFO
        refs = {"source_entry_ids": list(dict.fromkeys(evidence))}
        await self.publish(self._fact(tick, crew_id, run, "run", said, severity=severity, refs=refs))

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


_Learned = tuple[tuple[RuleLearned, ...], tuple[str, ...], tuple[str, ...]]


def _learned(crew_id: str, tick: Tick, candidates: Sequence[Candidate], known: Sequence[KnownRule]) -> _Learned:
    """New rules with the entry that is typical of each, and the rules that were found again."""
    by_id = {one.entry_id: one for one in candidates}
    analyzer = Analyzer(Stemmer)
    told = [Occurrence(one.entry_id, one.ts_ms // DAY_MS, _terms(analyzer, one)) for one in candidates]
    recent = {normalised(one.pattern) for one in known if one.learned_ms > tick.due_ms - REPEAT_DAYS * DAY_MS}
    learned, typical, confirmed = [], [], []
    for group in recurrences(told):
        members = [by_id[entry_id] for entry_id in group.evidence]
        if not any(one.is_new for one in members):
            continue
        pattern = " ".join(by_id[group.typical].summary.split())[:_TEXT_CHARS]
        same = next((rule for rule in reversed(known) if _is_same(rule, group)), None)
        if same is not None:
            if not same.is_retracted and any(one.seq > same.last_seq for one in members):
                confirmed.append(same.rule_id)
        elif normalised(pattern) not in recent:
            recent.add(normalised(pattern))
            typical.append(group.typical)
            learned.append(
                RuleLearned(
                    crew_id=crew_id,
                    pattern=pattern,
                    action=_action(members),
                    evidence=group.evidence,
                    confidence=group.confidence,
                    days=group.days,
                )
            )
    return tuple(learned), tuple(typical), tuple(dict.fromkeys(confirmed))


def _terms(analyzer: Analyzer, one: Candidate) -> frozenset[int]:
    """The terms of a summary; words with digits name one occurrence and are left out."""
    words = [word for word in tokens_of(one.summary) if word.isalpha()]
    return frozenset(key for key in analyzer.keys_of(words) if key)


def _is_same(rule: KnownRule, group: Recurrence) -> bool:
    shared = len(rule.evidence.intersection(group.evidence))
    return shared >= _SAME_EVIDENCE * min(len(rule.evidence), len(group.evidence))


def _action(members: Sequence[Candidate]) -> str:
    """What the newest entry of the evidence says to do; empty if none says so."""
    for name in _ACTIONS:
        for one in reversed(members):
            said = one.payload.get(name)
            if isinstance(said, str) and said.strip():
                return " ".join(said.split())[:_TEXT_CHARS]
    return ""


def _promotion(rule: KnownRule, types: dict[str, str], searches: Sequence[Search], tick: Tick) -> RulePromoted | None:
    """The promotion of a rule that has proved useful and is not promoted yet."""
    if rule.is_promoted or rule.is_retracted:
        return None
    about = rule.evidence | {rule.rule_id}
    found = [one for one in searches if not about.isdisjoint(one.hits)]
    last = max((one.ts_ms for one in found), default=None)
    measured = Usefulness(
        relevance=rule.confidence,
        recalls=len(found),
        queries=len({one.query for one in found}),
        days_since=None if last is None else (tick.due_ms - last) / DAY_MS,
        runs=rule.runs,
        evidence=len(rule.evidence),
        types=len({types[entry_id] for entry_id in rule.evidence if entry_id in types}),
    )
    if not is_promoted(measured):
        return None
    return RulePromoted(
        rule_id=rule.rule_id, score=round(score(measured), 4), recalls=measured.recalls, queries=measured.queries
    )


def create(context: ReactorContext) -> Reactor | None:
    """The consolidation reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    return ConsolidateReactor(context.client, context.publisher, context.views, clock=context.clock)


REACTOR: Final = create
