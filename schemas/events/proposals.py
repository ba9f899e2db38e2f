"""Payloads of proposals: rules and skills that wait for the decision of a person.

The approval of a rule is a ``rule.learned`` that names the proposal, that of a skill a decision.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..entry import Id
from .learning import Label
from .payload import ControlPayload, EntryTypeInfo, PublisherKind


class RuleProposed(ControlPayload):
    """A run found a rule that a person has to review, or a learned rule is proposed as a skill.

    A rule is reviewed in a workspace whose rules are reviewed, and if its evidence has one publisher or one day of receipt.
    The other fields are those of ``RuleLearned``.

    Attributes:
        skill_of: The learned rule that is proposed as a skill; None if the proposal is a new rule.
        score: How useful that rule is (``rules/consolidation.score``).
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
