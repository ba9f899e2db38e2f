"""Payloads of rules, lessons, and the runs that look for rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind

LessonKind = Literal["positive", "negative", "neutral"]
LessonSource = Literal[
    "manual", "skill_promote", "negative_learning", "consolidator", "user_feedback", "mission_outcome"
]
LESSON_ID_MAX = 128
Label = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Step = Annotated[str, StringConstraints(min_length=1, max_length=200)]
LessonId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]+$", max_length=LESSON_ID_MAX)]


class RuleLearned(ControlPayload):
    """A rule of a crew: what recurs, and what to do about it.

    Attributes:
        pattern: The recurring event.
        action: What to do about it, or how often it was seen.
        evidence: The entries that show it, each once, oldest first.
        confidence: Confidence of the run in the rule.
        days: Different days (UTC) on which the broker received the evidence.
        model: The language model that worded the rule; None if the rule was found by recurrence.
        proposal_id: The proposal that a person approved; None if the rule was not reviewed.
        publishers: The publishers of the evidence (``core/principal``), each once; empty in rules of older versions.
        authors: The displayed authors of the evidence, authors of most entries first.
        settles: The pending proposal that this rule replaces, because a second publisher has reported the same in the
            meantime.
        reason: Why it was approved although an expectation was not met; empty if nothing stood against it.
    """

    ENTRY_TYPE = "rule.learned"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    crew_id: Id
    pattern: str = Field(min_length=1, max_length=600)
    action: str = Field(default="", max_length=600)
    evidence: tuple[Id, ...] = Field(min_length=2, max_length=500)
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    days: int = Field(default=1, ge=1)
    model: str | None = Field(default=None, max_length=96)
    proposal_id: Id | None = None
    publishers: tuple[Label, ...] = Field(default=(), max_length=500)
    authors: tuple[Label, ...] = Field(default=(), max_length=20)
    settles: Id | None = None
    reason: str = Field(default="", max_length=1_000, exclude_if=lambda reason: not reason)


class RulePromoted(ControlPayload):
    """A rule proved useful: its score and the number of searches that found it or its evidence reached the thresholds."""

    ENTRY_TYPE = "rule.promoted"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True)
    rule_id: Id
    score: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    recalls: int = Field(ge=0)
    queries: int = Field(ge=0)


RuleState = Literal["confirmed", "disputed", "unhelpful", "contradicted", "expired"]


class RuleChanged(ControlPayload):
    """What became of a learned rule: its evidence grew, or it was refuted, or it was not seen for a long time.

    Attributes:
        state: ``confirmed``: new entries show it, so that an expired or disputed rule counts again. ``disputed``: one
            publisher reports that its action does not help; it is shown with that. ``unhelpful``: it harmed more than it
            was used, or nobody used it (``consolidation.is_unhelpful``); it is shown after the others. ``contradicted``:
            two publishers or a person report that the action does not help. ``expired``: neither seen nor searched for
            several times its period. Contradicted and expired rules are not shown.
        evidence: All entries that show it, the newest 500.
        days: Different days (UTC) of their receipt.
        publishers: Of the evidence.
        authors: Of the evidence, as displayed.
        seen_ms: When the newest evidence was received, milliseconds since the epoch.
        by: The entries that refute it, or that name it as a cause of harm.
        given: How often a prompt had it.
        used: How many publishers reported that they used it.
        harmed: How many publishers reported harm.
    """

    ENTRY_TYPE = "rule.changed"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True)
    rule_id: Id
    state: RuleState
    evidence: tuple[Id, ...] = Field(default=(), max_length=500)
    days: int = Field(default=1, ge=1)
    publishers: tuple[Label, ...] = Field(default=(), max_length=500)
    authors: tuple[Label, ...] = Field(default=(), max_length=20)
    seen_ms: int = Field(default=0, ge=0)
    by: tuple[Id, ...] = Field(default=(), max_length=50)
    given: int = Field(default=0, ge=0)
    used: int = Field(default=0, ge=0)
    harmed: int = Field(default=0, ge=0)


class LessonRecorded(ControlPayload):
    """A lesson; the last one with an id counts. The lesson belongs to the crew or agent of the entry.

    Attributes:
        rule: What to do or to avoid.
        context: Where it was learned.
    """

    ENTRY_TYPE = "lesson.recorded"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    lesson_id: LessonId
    kind: LessonKind
    source: LessonSource
    rule: str = Field(min_length=1, max_length=2_000)
    context: str = Field(default="", max_length=2_000)


class MemoryConsolidated(ControlPayload):
    """A run read the entries of a crew; it may have learned rules.

    An OWNER or ADMIN may record such an entry with other fields; all of these have a default.

    Attributes:
        rules: Rules that it learned.
        confirmed: Rules of earlier runs that it found again.
        promoted: Rules that it promoted.
        proposed: Rules that it proposed to people, in a workspace whose rules are reviewed.
        candidates: Entries that rules could be learned from.
        entries_scanned: Candidates within the look-back.
        model: The language model; None if rules were found by recurrence.
    """

    ENTRY_TYPE = "memory.consolidated"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.OPERATORS)
    crew_id: Id | None = None
    rules_count: int = Field(default=0, ge=0)
    rules: tuple[Id, ...] = ()
    confirmed: tuple[Id, ...] = ()
    promoted: tuple[Id, ...] = ()
    proposed: tuple[Id, ...] = ()
    candidates: int = Field(default=0, ge=0)
    entries_scanned: int = Field(default=0, ge=0)
    model: str | None = Field(default=None, max_length=96)


# Payloads of proposals: rules and skills that wait for the decision of a person.


class RuleProposed(ControlPayload):
    """A run proposes a rule that a person has to review, a rule or procedure as a skill, or to retire a rule.

    A rule is reviewed in a workspace whose rules are reviewed, and if its evidence has one publisher or one day of
    receipt. The other fields are the same as in ``RuleLearned``.

    Attributes:
        skill_of: The learned rule that is proposed as a skill or is to be retired; of a procedure, a name that follows from
            its steps; None if the proposal is a new rule.
        retires: Whether the learned rule is to be retired.
        steps: The steps of a procedure that runs of the crew repeated.
        score: How useful that rule is (``schemas/learning/consolidation.score``).
        recalls: Recorded searches that found it or its evidence.
    """

    ENTRY_TYPE = "proposal.made"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED, noise=True)
    crew_id: Id
    pattern: str = Field(min_length=1, max_length=600)
    action: str = Field(default="", max_length=600)
    evidence: tuple[Id, ...] = Field(min_length=2, max_length=500)
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    days: int = Field(default=1, ge=1)
    model: str | None = Field(default=None, max_length=96)
    skill_of: Id | None = None
    retires: bool = False
    steps: tuple[Step, ...] = Field(default=(), max_length=20)
    score: float | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False)
    recalls: int | None = Field(default=None, ge=0)
    publishers: tuple[Label, ...] = Field(default=(), max_length=500)
    authors: tuple[Label, ...] = Field(default=(), max_length=20)


class ProposalDecided(ControlPayload):
    """A person rejected a proposal, or undid that; the last decision counts.

    ``approved`` and ``undone`` occur for skills only: an approval wrote the procedure, an undo retracted it.
    """

    ENTRY_TYPE = "proposal.decided"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED, noise=True)
    proposal_id: Id
    decision: Literal["rejected", "reopened", "approved", "undone"]
    reason: str = Field(default="", max_length=1_000)
