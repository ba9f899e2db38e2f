"""Tables of what crews have learned: rules, proposals, lessons. All are append-only; a retraction undoes a row."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Int32, Ms, Seq, Table

LEARNING_PROJECTION: Final = "learning"


class RuleRow(NamedTuple):
    """A learned rule; its id is the id of its entry."""

    workspace_id: str
    crew_id: str
    rule_id: str
    pattern: str
    action: str
    confidence: float
    evidence: str  # JSON list of entry ids
    occurrences: Int32
    days: Int32
    finding: str | None  # ``category/pattern`` of what the scanners block in its text
    learned_ms: Ms
    seq: Seq
    proposal_id: str | None = None
    publishers: str = "[]"  # JSON list
    authors: str = "[]"  # JSON list
    settles: str | None = None


class ProposalRow(NamedTuple):
    """A proposed rule or skill, or a rule that was learned before publishers were counted; its id is the id of its entry."""

    workspace_id: str
    crew_id: str
    proposal_id: str
    pattern: str
    action: str
    confidence: float
    evidence: str  # JSON list of entry ids
    days: Int32
    model: str | None
    finding: str | None
    made_ms: Ms
    seq: Seq
    skill_of: str | None = None  # the rule that is proposed as a skill or for retirement, or the name of a procedure
    publishers: str = "[]"  # JSON list; empty if they were not recorded
    authors: str = "[]"  # JSON list
    kind: str = "rule"  # rule, skill, procedure, retirement
    steps: str = "[]"  # JSON list of texts


class ProposalDecisionRow(NamedTuple):
    """A decision on a proposal; the last one counts. An approved rule is stored as a rule instead."""

    workspace_id: str
    proposal_id: str
    decision: str
    reason: str
    seq: Seq


class RuleMarkRow(NamedTuple):
    """A rule was found again (``confirmed``) or proved useful (``promoted``)."""

    workspace_id: str
    rule_id: str
    mark: str
    seq: Seq


class RuleStateRow(NamedTuple):
    """What became of a rule (``events.RuleChanged``); the last row of a rule counts."""

    workspace_id: str
    rule_id: str
    state: str
    evidence: str  # JSON list of entry ids
    occurrences: Int32
    days: Int32
    publishers: str  # JSON list
    authors: str  # JSON list
    refuted_by: str  # JSON list of entry ids
    seen_ms: Ms
    changed_ms: Ms
    seq: Seq


class LessonRow(NamedTuple):
    """A version of a lesson; the last version of an id that is not retracted counts."""

    workspace_id: str
    owner: str  # ``schemas/documents/rules.owner_of``
    lesson_id: str
    kind: str
    captured_ms: Ms
    source: str
    rule: str
    context: str
    finding: str | None
    entry_id: str
    seq: Seq
    author: str = ""  # as displayed
    publisher: str = ""


RULES: Final = Table("memory_rules", RuleRow, LEARNING_PROJECTION)
RULE_MARKS: Final = Table("memory_rule_marks", RuleMarkRow, LEARNING_PROJECTION)
RULE_STATES: Final = Table("memory_rule_states", RuleStateRow, LEARNING_PROJECTION)
PROPOSALS: Final = Table("memory_proposals", ProposalRow, LEARNING_PROJECTION)
PROPOSAL_DECISIONS: Final = Table("memory_proposal_decisions", ProposalDecisionRow, LEARNING_PROJECTION)
LESSONS: Final = Table("memory_lessons", LessonRow, LEARNING_PROJECTION)
