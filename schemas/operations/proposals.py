"""Operations on proposals: rules and skills that wait for the decision of a person."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from pydantic import Field

from ..entry import Id
from ..views import LEARNING_PROJECTION, STANDINGS_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Visible, Workspace
from .retractions import Reason


class ProposalState(StrEnum):
    """State of a proposal.

    ``undone``: its rule or procedure is retracted. ``learned``: another publisher has reported the same since, so the rule
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
    workspace_id: Workspace = None


class ExplainProposalRequest(Request):
    """Show a proposed rule or skill with the entries of its evidence."""

    proposal_id: Id = Field(description="The proposal.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class DiffProposalRequest(Request):
    """Show what the approval of a proposal changes: the rules in the prompts of its crew, or the procedure of a skill."""

    proposal_id: Id = Field(description="The proposal.")
    min_seq: MinSeq = None
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
    """A proposal; ``reason`` is that of the last decision.

    ``authors`` are those of its evidence. ``rule_id`` is the rule once it is approved; of a skill, the rule it is made from.
    ``document`` is its procedure.
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
    kind: Literal["rule", "skill"]
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
    """The proposal and the entries of its evidence that exist, oldest first; ``gone`` counts those that do not."""

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
    PROPOSALS,
    EXPLAIN_PROPOSAL,
    DIFF_PROPOSAL,
    APPROVE_PROPOSAL,
    REJECT_PROPOSAL,
    UNDO_PROPOSAL,
)
