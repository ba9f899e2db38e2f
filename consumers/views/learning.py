"""``memory_rules``, ``memory_rule_marks``, ``memory_proposals``, ``memory_lessons``: what crews have learned.

Invariant: rules and recorded lessons come from control entries alone; the lesson of feedback, or the outcome of a mission,
is the entry that says so, so retracting that entry undoes it. A rule that was learned before publishers were counted waits
for a person like a proposal.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from ...schemas.entry import ActorType
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.learning import LessonRecorded, RuleLearned, RulePromoted
from ...schemas.events.proposals import ProposalDecided, RuleProposed
from ...schemas.ids import is_id
from ...schemas.rules import injection
from ...schemas.rules.agreement import MIN_PUBLISHERS
from ...schemas.rules.consolidation import CONSOLIDATED
from ...schemas.rules.documents import finding_in
from ...schemas.rules.lessons import (
    FEEDBACK,
    MISSION,
    MISSION_OUTCOME,
    NEGATIVE_LEARNING,
    mission_outcome,
    negative_feedback,
)
from ...schemas.rules.publishers import UNRECORDED, author_shown
from ...schemas.rules.tiers import Scope, owner_of
from ...schemas.views.learning import (
    LEARNING_PROJECTION,
    LESSONS,
    PROPOSAL_DECISIONS,
    PROPOSALS,
    RULE_MARKS,
    RULES,
    LessonRow,
    ProposalDecisionRow,
    ProposalRow,
    RuleMarkRow,
    RuleRow,
)
from ...schemas.views.table import Tables
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

CONFIRMED: Final = "confirmed"
PROMOTED: Final = "promoted"


class LearningProjection:
    """Folds learned rules, their marks, proposals, recorded lessons, ends of missions and feedback."""

    name: ClassVar = LEARNING_PROJECTION
    version: ClassVar = 100 + injection.REVISION  # findings are stored
    tables: ClassVar[Tables] = (RULES, RULE_MARKS, PROPOSALS, PROPOSAL_DECISIONS, LESSONS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append a row for each."""
        learned = [(event, payload_of(event, RuleLearned)) for event in batch.control(RuleLearned.ENTRY_TYPE)]
        rules = [_rule(event, rule) for event, rule in learned if _is_shared(rule)]
        waiting = [_proposal(event, rule) for event, rule in learned if not _is_shared(rule)]
        marks = [
            RuleMarkRow(event.workspace_id, payload_of(event, RulePromoted).rule_id, PROMOTED, event.seq)
            for event in batch.control(RulePromoted.ENTRY_TYPE)
        ]
        for event in batch.control(CONSOLIDATED):
            marks += [RuleMarkRow(event.workspace_id, rule_id, CONFIRMED, event.seq) for rule_id in _confirmed(event)]
        lessons = [
            _recorded(event, payload_of(event, LessonRecorded)) for event in batch.control(LessonRecorded.ENTRY_TYPE)
        ]
        lessons += [_of_mission(event) for event in batch.entries if event.entry.entry_type == MISSION]
        lessons += [_of_feedback(event) for event in batch.entries if event.entry.entry_type == FEEDBACK]
        proposed = batch.control(RuleProposed.ENTRY_TYPE)
        tx.add(PROPOSALS, [*waiting, *(_proposal(event, payload_of(event, RuleProposed)) for event in proposed)])
        tx.add(PROPOSAL_DECISIONS, [_decision(event) for event in batch.control(ProposalDecided.ENTRY_TYPE)])
        tx.add(RULES, rules)
        tx.add(RULE_MARKS, marks)
        tx.add(LESSONS, [lesson for lesson in lessons if lesson is not None])


def _rule(event: EntryRecorded, rule: RuleLearned) -> RuleRow:
    return RuleRow(
        event.workspace_id,
        rule.crew_id,
        event.entry.id,
        rule.pattern,
        rule.action,
        rule.confidence,
        json.dumps(rule.evidence),
        len(rule.evidence),
        rule.days,
        finding_in(f"{rule.pattern}\n{rule.action}"),
        event.ts_ms,
        event.seq,
        rule.proposal_id,
        json.dumps(rule.publishers),
        json.dumps(rule.authors),
        rule.settles,
    )


def _is_shared(rule: RuleLearned) -> bool:
    """Whether a person approved the rule, or two publishers said it."""
    return rule.proposal_id is not None or len(rule.publishers) >= MIN_PUBLISHERS


def _proposal(event: EntryRecorded, rule: RuleProposed | RuleLearned) -> ProposalRow:
    return ProposalRow(
        event.workspace_id,
        rule.crew_id,
        event.entry.id,
        rule.pattern,
        rule.action,
        rule.confidence,
        json.dumps(rule.evidence),
        rule.days,
        rule.model,
        finding_in(f"{rule.pattern}\n{rule.action}"),
        event.ts_ms,
        event.seq,
        rule.skill_of if isinstance(rule, RuleProposed) else None,
        json.dumps(rule.publishers),
        json.dumps(rule.authors),
    )


def _decision(event: EntryRecorded) -> ProposalDecisionRow:
    payload = payload_of(event, ProposalDecided)
    return ProposalDecisionRow(event.workspace_id, payload.proposal_id, payload.decision, payload.reason, event.seq)


def _confirmed(event: EntryRecorded) -> list[str]:
    """The rules that a run found again; an operator's entry of this type may have any payload."""
    names = event.entry.payload.get(CONFIRMED)
    return [name for name in names if isinstance(name, str) and is_id(name)] if isinstance(names, list) else []


def _recorded(event: EntryRecorded, lesson: LessonRecorded) -> LessonRow | None:
    entry = event.entry
    return _row(event, lesson.lesson_id, lesson.kind, lesson.source, lesson.rule, lesson.context, entry.agent_id)


def _of_mission(event: EntryRecorded) -> LessonRow | None:
    entry = event.entry
    if (outcome := mission_outcome(entry)) is None:
        return None
    mission, kind, status = outcome
    reason = entry.payload.get("reason")
    context = f"mission {mission}: {status}" + (f"; {reason}" if isinstance(reason, str) and reason.strip() else "")
    return _row(event, f"{MISSION_OUTCOME}_{mission}", kind, MISSION_OUTCOME, entry.summary, context, None)


def _of_feedback(event: EntryRecorded) -> LessonRow | None:
    """The lesson of the crew that the feedback names, else of its agent."""
    entry = event.entry
    if (feedback := negative_feedback(entry)) is None:
        return None
    rule, context = feedback
    return _row(event, f"feedback_{entry.id}", "negative", NEGATIVE_LEARNING, rule, context, entry.agent_id)


def _row(
    event: EntryRecorded, lesson_id: str, kind: str, source: str, rule: str, context: str, agent_id: str | None
) -> LessonRow | None:
    """The crew's lesson, else the agent's; None without either."""
    crew_id = event.entry.crew_id
    if crew_id is None and agent_id is None:
        return None
    owner = owner_of(Scope.AGENT, agent_id) if crew_id is None else owner_of(Scope.CREW, crew_id)
    finding = finding_in(f"{rule}\n{context}")
    entry, publisher = event.entry, event.publisher or UNRECORDED
    by = f"{entry.actor_type.value} {entry.actor_id or ''}".strip()
    author = by if event.control or entry.actor_type is ActorType.USER else author_shown(publisher, entry.agent_id)
    return LessonRow(
        event.workspace_id,
        owner,
        lesson_id,
        kind,
        event.ts_ms,
        source,
        rule,
        context,
        finding,
        entry.id,
        event.seq,
        author,
        publisher,
    )


PROJECTION = LearningProjection
