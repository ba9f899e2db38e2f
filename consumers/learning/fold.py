"""``memory_rules``, ``memory_rule_marks``, ``memory_proposals``, ``memory_lessons``: what crews have learned.

Invariant: rules and recorded lessons come from control entries alone; the lesson of feedback or of a person's own turn, or
the outcome of a mission, is the entry that says so, so retracting that entry undoes it. A rule that was learned before
publishers were counted waits for a person like a proposal.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.grants import is_person
from ...schemas.core.ids import is_id
from ...schemas.core.principal import UNRECORDED, author_shown
from ...schemas.core.table import Tables
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.entries.rules import USER_MESSAGE
from ...schemas.learning.agreement import MIN_PUBLISHERS
from ...schemas.learning.events import (
    LessonRecorded,
    MemoryConsolidated,
    ProposalDecided,
    RuleChanged,
    RuleLearned,
    RulePromoted,
    RuleProposed,
)
from ...schemas.learning.lessons import (
    FEEDBACK,
    MISSION,
    MISSION_OUTCOME,
    NEGATIVE_LEARNING,
    USER_FEEDBACK,
    instructions_in,
    mission_outcome,
    negative_feedback,
    said_id,
)
from ...schemas.learning.tables import (
    LEARNING_PROJECTION,
    LESSONS,
    PROPOSAL_DECISIONS,
    PROPOSALS,
    RULE_MARKS,
    RULE_STATES,
    RULES,
    LessonRow,
    ProposalDecisionRow,
    ProposalRow,
    RuleMarkRow,
    RuleRow,
    RuleStateRow,
)
from ...schemas.text import injection
from ...schemas.text.injection import finding_in
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction

CONFIRMED: Final = "confirmed"
PROMOTED: Final = "promoted"


class LearningProjection:
    """Folds learned rules, their marks, proposals, recorded lessons, ends of missions and feedback."""

    name: ClassVar = LEARNING_PROJECTION
    version: ClassVar = 300 + injection.REVISION  # findings are stored
    tables: ClassVar[Tables] = (RULES, RULE_MARKS, RULE_STATES, PROPOSALS, PROPOSAL_DECISIONS, LESSONS)
    folds: ClassVar = (
        EntryRecorded,
        RuleLearned,
        RulePromoted,
        RuleChanged,
        MemoryConsolidated,
        LessonRecorded,
        RuleProposed,
        ProposalDecided,
    )

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append a row for each."""
        learned = list(decisions(batch, RuleLearned))
        rules = [_rule(event, rule) for event, rule in learned if _is_shared(rule)]
        waiting = [_proposal(event, rule) for event, rule in learned if not _is_shared(rule)]
        marks = [
            RuleMarkRow(event.workspace_id, promoted.rule_id, PROMOTED, event.seq)
            for event, promoted in decisions(batch, RulePromoted)
        ]
        for event in batch.control(MemoryConsolidated):
            marks += [RuleMarkRow(event.workspace_id, rule_id, CONFIRMED, event.seq) for rule_id in _confirmed(event)]
        lessons = [_recorded(event, lesson) for event, lesson in decisions(batch, LessonRecorded)]
        lessons += [_of_mission(event) for event in batch.entries if event.entry.entry_type == MISSION]
        lessons += [_of_feedback(event) for event in batch.entries if event.entry.entry_type == FEEDBACK]
        lessons += [lesson for event in batch.entries if _is_own_turn(event) for lesson in _of_turn(event)]
        proposed = [_proposal(event, proposal) for event, proposal in decisions(batch, RuleProposed)]
        tx.add(PROPOSALS, [*waiting, *proposed])
        tx.add(PROPOSAL_DECISIONS, [_decision(event, made) for event, made in decisions(batch, ProposalDecided)])
        tx.add(RULES, rules)
        tx.add(RULE_STATES, [_state(event, changed) for event, changed in decisions(batch, RuleChanged)])
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


def _state(event: EntryRecorded, changed: RuleChanged) -> RuleStateRow:
    return RuleStateRow(
        event.workspace_id,
        changed.rule_id,
        changed.state,
        json.dumps(changed.evidence),
        len(changed.evidence),
        changed.days,
        json.dumps(changed.publishers),
        json.dumps(changed.authors),
        json.dumps(changed.by),
        changed.seen_ms,
        event.ts_ms,
        event.seq,
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
        finding_in("\n".join((rule.pattern, rule.action, *getattr(rule, "steps", ())))),
        event.ts_ms,
        event.seq,
        rule.skill_of if isinstance(rule, RuleProposed) else None,
        json.dumps(rule.publishers),
        json.dumps(rule.authors),
        _kind(rule),
        json.dumps(rule.steps if isinstance(rule, RuleProposed) else ()),
    )


def _kind(rule: RuleProposed | RuleLearned) -> str:
    if not isinstance(rule, RuleProposed) or rule.skill_of is None:
        return "rule"
    return "retirement" if rule.retires else "procedure" if rule.steps else "skill"


def _decision(event: EntryRecorded, made: ProposalDecided) -> ProposalDecisionRow:
    return ProposalDecisionRow(event.workspace_id, made.proposal_id, made.decision, made.reason, event.seq)


def _confirmed(event: EntryRecorded) -> list[str]:
    """The rules that a run found again; an operator's entry of this type may have any payload."""
    named = event.entry.payload.get(CONFIRMED)
    return [one for one in named if isinstance(one, str) and is_id(one)] if isinstance(named, list) else []


def _recorded(event: EntryRecorded, lesson: LessonRecorded) -> LessonRow | None:
    entry = event.entry
    return _row(event, lesson.lesson_id, lesson.kind, lesson.source, lesson.rule, lesson.context, entry.agent_id)


def _of_mission(event: EntryRecorded) -> LessonRow | None:
    entry = event.entry
    if (outcome := mission_outcome(entry)) is None:
        return None
    mission, kind, status = outcome
    said = entry.payload.get("reason")
    context = f"mission {mission}: {status}" + (f"; {said}" if isinstance(said, str) and said.strip() else "")
    return _row(event, f"{MISSION_OUTCOME}_{mission}", kind, MISSION_OUTCOME, entry.summary, context, None)


def _of_feedback(event: EntryRecorded) -> LessonRow | None:
    """The lesson of the crew that the feedback names, else of its agent."""
    entry = event.entry
    if (said := negative_feedback(entry)) is None:
        return None
    rule, context = said
    return _row(event, f"feedback_{entry.id}", "negative", NEGATIVE_LEARNING, rule, context, entry.agent_id)


def _is_own_turn(event: EntryRecorded) -> bool:
    """Whether a person wrote a turn, and a token that speaks for the person published it."""
    return event.vouched and event.entry.entry_type == USER_MESSAGE and is_person(event.entry.actor_id or "")


def _of_turn(event: EntryRecorded) -> list[LessonRow | None]:
    """A lesson for each standing instruction in a person's own turn."""
    entry = event.entry
    text = entry.payload.get("text")
    said = instructions_in(text if isinstance(text, str) else entry.summary)
    return [_row(event, said_id(rule), "neutral", USER_FEEDBACK, rule, "", entry.agent_id) for rule in said]


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
