"""Operations on what crews have learned: run a consolidation, list the rules, add a lesson."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from ..core.entry import Id
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Visible, Workspace
from ..standing.operations import Reason
from ..standing.tables import STANDINGS_PROJECTION
from .events import LessonId, LessonKind
from .tables import LEARNING_PROJECTION

Duration = Annotated[str, Field(pattern=r"^[1-9]\d{0,3}[hdw]$")]


class ConsolidateRequest(Request):
    """Learn rules from recurring entries of a crew.

    A finding from only one publisher, or from only one day of receipt, is proposed to a person instead.

    Returns when the run has finished, or after two seconds; it then continues in the background. One run at a time in a
    workspace. A crew with fewer than 10 candidates within the look-back is skipped, unless a candidate is permanent.
    """

    crew_id: Id | None = Field(default=None, description="The crew; all if absent.")
    since: Duration = Field(
        default="24h",
        description="Look-back in hours, days or weeks: 24h, 7d, 2w.",
        json_schema_extra={"x-fix": "send a number of hours, days or weeks: 24h, 7d, 2w"},
    )
    workspace_id: Workspace = None


class LearnedRulesRequest(Request):
    """List the learned rules of a crew, with their evidence; the proven ones first."""

    crew_id: Id | None = Field(default=None, description="The crew, for OWNER and ADMIN; else that of the token.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class AddLessonRequest(Request):
    """Add a lesson to a crew or an agent; a lesson with the same id is replaced.

    AGENT adds lessons of its own, LEAD also those of its crew (the default), OWNER and ADMIN any.
    """

    rule: str = Field(min_length=1, max_length=2_000, pattern=r"\S", description="What to do or to avoid.")
    kind: LessonKind = Field(default="neutral", description="positive, negative or neutral.")
    context: str = Field(default="", max_length=2_000, description="Where it was learned.")
    source: Literal["manual", "user_feedback"] = Field(default="manual", description="manual or user_feedback.")
    lesson_id: LessonId | None = Field(default=None, description="Id of the lesson; generated if absent.")
    crew_id: Id | None = Field(default=None, description="The crew whose lesson it is.")
    agent_id: Id | None = Field(default=None, description="The agent whose lesson it is, if no crew is given.")
    workspace_id: Workspace = None


class LessonsRequest(Request):
    """List lessons, the newest first: of a crew and of an agent; by default of those that the token names.

    OWNER and ADMIN who name neither get all lessons of the workspace.
    """

    crew_id: Id | None = Field(default=None, description="The crew, for OWNER and ADMIN; else that of the token.")
    agent_id: Id | None = Field(default=None, description="The agent, for OWNER and ADMIN; else that of the token.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class ConsolidationAnswer(Answer):
    """The run that was recorded: its ``due`` time, the beginning of its look-back, the ``seq`` of its event.

    If it has ``finished``, ``counts`` says what it did, and ``skipped`` why it left out crews, null if it left out no
    crew.
    """

    workspace_id: str
    crew_id: str | None
    due: str
    since: str
    seq: int
    finished: bool = False
    counts: dict[str, int] = Field(default_factory=dict)
    skipped: str | None = None


class LearnedRuleShown(Answer):
    """A learned rule; ``rule_id`` is the id of its entry, which can be retracted.

    ``authors`` are the authors of the evidence, ``days`` the days of its receipt; ``reviewed``: a person approved the
    rule. ``state``: ``confirmed`` if new entries showed it since, ``disputed`` if one publisher reports that its action does
    not help, ``unhelpful`` if it harmed more than it was used; contradicted and expired rules are not listed.
    """

    rule_id: str
    crew_id: str
    pattern: str
    action: str
    confidence: float
    evidence: tuple[str, ...]
    days: int
    authors: tuple[str, ...]
    reviewed: bool
    promoted: bool
    learned_at: str
    state: Literal["learned", "confirmed", "disputed", "unhelpful"] = "learned"


class LearnedRulesAnswer(Answer):
    """The rules that count."""

    rules: tuple[LearnedRuleShown, ...]
    view_seq: int


class LessonAnswer(Answer):
    """The lesson; ``entry_id`` is the id of its entry, which can be retracted."""

    lesson_id: str
    entry_id: str
    seq: int
    visible: Visible = True


class LessonShown(Answer):
    """A lesson; ``source`` says where it comes from, ``owner`` is the crew or agent whose lesson it is."""

    lesson_id: str
    owner: str
    kind: str
    rule: str
    context: str
    source: str
    author: str
    captured_at: str


class LessonsAnswer(Answer):
    """The lessons that count."""

    lessons: tuple[LessonShown, ...]
    view_seq: int


CONSOLIDATE: Final = Operation(
    name="consolidate",
    request=ConsolidateRequest,
    answer=ConsolidationAnswer,
    route="POST /v1/admin/consolidations",
    effect=Effect.STARTS,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="consolidate run",
    repeatable=False,
)
LEARNED_RULES: Final = Operation(
    name="learned_rules",
    request=LearnedRulesRequest,
    answer=LearnedRulesAnswer,
    route="GET /v1/memory/rules",
    effect=Effect.READS,
    views=(LEARNING_PROJECTION,),
    command="consolidate rules",
)
ADD_LESSON: Final = Operation(
    name="add_lesson",
    request=AddLessonRequest,
    answer=LessonAnswer,
    route="POST /v1/memory/lessons",
    effect=Effect.CREATES,
    command="lesson add",
    repeatable=False,
)
LESSONS: Final = Operation(
    name="lessons",
    request=LessonsRequest,
    answer=LessonsAnswer,
    route="GET /v1/memory/lessons",
    effect=Effect.READS,
    views=(LEARNING_PROJECTION, STANDINGS_PROJECTION),
    command="lesson list",
)


# Operations on proposals: rules and skills that wait for the decision of a person.


class ProposalState(StrEnum):
    """State of a proposal.

    ``undone``: its rule or procedure is retracted. ``learned``: a second publisher reported the same later, so the rule
    was learned without a review.
    """

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    UNDONE = "undone"
    LEARNED = "learned"


class ProposalsRequest(Request):
    """List proposed rules and skills, the newest first."""

    state: ProposalState | None = Field(
        default=None, description="pending, approved, rejected, undone or learned; all if absent."
    )
    crew_id: Id | None = Field(default=None, description="The crew; all if absent.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class ExplainProposalRequest(Request):
    """Show a proposed rule or skill with the entries of its evidence."""

    proposal_id: Id = Field(description="The proposal.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class DiffProposalRequest(Request):
    """Show what the approval of a proposal changes: the rules in the prompts of its crew, or the procedure of a skill."""

    proposal_id: Id = Field(description="The proposal.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class ApproveProposalRequest(Request):
    """Approve a proposed rule, which then counts as learned, or a proposed skill.

    A skill is written as a document of tier ``procedures`` of the crew; the answer names it.
    """

    proposal_id: Id = Field(description="The proposal.")
    workspace_id: Workspace = None


class RejectProposalRequest(Request):
    """Reject a proposed rule or skill; it is not proposed again."""

    proposal_id: Id = Field(description="The proposal.")
    reason: Reason
    workspace_id: Workspace = None


class UndoProposalRequest(Request):
    """Undo a decision: the approved rule or procedure is retracted, a rejected proposal is pending again."""

    proposal_id: Id = Field(description="The proposal.")
    reason: Reason
    workspace_id: Workspace = None


class ProposalShown(Answer):
    """A proposal; ``reason`` is the reason of the last decision.

    ``authors`` are the authors of the evidence. ``rule_id`` is the approved rule or, for a skill, the rule from which
    the skill is made, or, for a retirement, the rule that is to be retired. ``document`` is the skill's procedure.
    ``steps`` are those of a procedure that runs repeated.
    """

    proposal_id: str
    crew_id: str
    pattern: str
    action: str
    confidence: float
    evidence: tuple[str, ...]
    days: int
    authors: tuple[str, ...]
    model: str | None
    finding: str | None
    state: ProposalState
    reason: str
    rule_id: str | None
    made_at: str
    kind: Literal["rule", "skill", "procedure", "retirement"]
    steps: tuple[str, ...] = ()
    document: str | None


class ProposalsAnswer(Answer):
    """The proposals."""

    proposals: tuple[ProposalShown, ...]
    view_seq: int


class EvidenceShown(Answer):
    """An entry of the evidence: its author, when it happened as the author says, and when it was received."""

    entry_id: str
    entry_type: str
    author: str
    ts: str
    received_at: str
    summary: str


class ProposalExplained(Answer):
    """The proposal and the existing entries of its evidence, oldest first; ``gone`` counts entries that no longer exist."""

    proposal: ProposalShown
    entries: tuple[EvidenceShown, ...]
    gone: int
    view_seq: int


class ProposalDiff(Answer):
    """The rules in the crew's prompts (of a skill: its procedure) now, after an approval, and a unified diff of both."""

    before: str
    after: str
    diff: str
    view_seq: int


class ProposalDecisionAnswer(Answer):
    """The state after the decision, and the ``seq`` of its event."""

    proposal_id: str
    state: ProposalState
    rule_id: str | None
    document: str | None
    seq: int
    visible: Visible = True


_ROUTE: Final = "/v1/admin/proposals"
_VIEWS: Final = (LEARNING_PROJECTION, STANDINGS_PROJECTION)
PROPOSALS: Final = Operation(
    name="proposals",
    request=ProposalsRequest,
    answer=ProposalsAnswer,
    route=f"GET {_ROUTE}",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    command="proposal list",
)
EXPLAIN_PROPOSAL: Final = Operation(
    name="explain_proposal",
    request=ExplainProposalRequest,
    answer=ProposalExplained,
    route=f"GET {_ROUTE}/{{proposal_id}}",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    errors=(404,),
    command="proposal explain",
)
DIFF_PROPOSAL: Final = Operation(
    name="diff_proposal",
    request=DiffProposalRequest,
    answer=ProposalDiff,
    route=f"GET {_ROUTE}/{{proposal_id}}/diff",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    errors=(404, 409),
    command="proposal diff",
)
APPROVE_PROPOSAL: Final = Operation(
    name="approve_proposal",
    request=ApproveProposalRequest,
    answer=ProposalDecisionAnswer,
    route=f"POST {_ROUTE}/{{proposal_id}}/approve",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409, 410, 413, 422),
    command="proposal approve",
    repeatable=False,
)
REJECT_PROPOSAL: Final = Operation(
    name="reject_proposal",
    request=RejectProposalRequest,
    answer=ProposalDecisionAnswer,
    route=f"POST {_ROUTE}/{{proposal_id}}/reject",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="proposal reject",
    repeatable=False,
)
UNDO_PROPOSAL: Final = Operation(
    name="undo_proposal",
    request=UndoProposalRequest,
    answer=ProposalDecisionAnswer,
    route=f"POST {_ROUTE}/{{proposal_id}}/undo",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="proposal undo",
    repeatable=False,
)

OPERATIONS: Final = (
    CONSOLIDATE,
    LEARNED_RULES,
    ADD_LESSON,
    LESSONS,
    PROPOSALS,
    EXPLAIN_PROPOSAL,
    DIFF_PROPOSAL,
    APPROVE_PROPOSAL,
    REJECT_PROPOSAL,
    UNDO_PROPOSAL,
)
