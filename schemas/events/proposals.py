"""Payloads of proposals: rules that wait for a person. An approved proposal is a ``rule.learned`` that names it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..entry import Id
from .payload import ControlPayload


class RuleProposed(ControlPayload):
    """A run found a rule in a workspace whose rules are reviewed; the fields are those of ``RuleLearned``."""

    ENTRY_TYPE = "proposal.made"
    crew_id: Id
    pattern: str = Field(min_length=1, max_length=600)
    action: str = Field(default="", max_length=600)
    evidence: tuple[Id, ...] = Field(min_length=2, max_length=500)
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    days: int = Field(default=1, ge=1)
    model: str | None = Field(default=None, max_length=96)


class ProposalDecided(ControlPayload):
    """A person rejected a proposal, or undid that; the last decision counts."""

    ENTRY_TYPE = "proposal.decided"
    proposal_id: Id
    decision: Literal["rejected", "reopened"]
    reason: str = Field(default="", max_length=1_000)
