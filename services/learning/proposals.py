"""The use-cases of proposals: list, explain, diff, approve, reject, undo.

Invariant: the event of the approved rule names its proposal and is the approval itself; its id is derived from the
proposal, so that two approvals give one rule. A proposed skill is approved once its procedure is written. The entry
records who decided.
"""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ...schemas.core.entry import MAX_SUMMARY, Priority
from ...schemas.core.errors import EvidenceGone, NotFound, ProposalNotPending
from ...schemas.core.ids import derived_id
from ...schemas.core.principal import UNRECORDED, author_shown
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.entries.tables import ENTRIES
from ...schemas.learning import operations as ops
from ...schemas.learning.events import ProposalDecided, RuleLearned
from ...schemas.learning.lessons import (
    RULES_SHOWN,
    LearnedRule,
    procedure_text,
    rule_summary,
    rules_shown,
    rules_text,
    skill_key,
    skill_text,
)
from ...schemas.learning.operations import PROPOSALS as LIST_PROPOSALS
from ...schemas.learning.tables import LEARNING_PROJECTION, PROPOSAL_DECISIONS, PROPOSALS, RULES, ProposalRow
from ...schemas.relations.rules import EVIDENCE_REF
from ...schemas.standing.operations import RestoreRequest, RetractRequest
from ...schemas.standing.tables import RETRACTIONS
from ..desk import Caller
from ..documents.addressing import DocumentAddress
from ..documents.drafts import Draft
from ..documents.journal_store import JournalStore
from ..documents.learned import Learned
from ..node import Answers, Decided, Node
from ..recall.expectations import Expectations
from ..standing.use_cases import Retractions

# Writes an approved skill as a procedure of its crew, and retracts it.


TIER = "procedures"
SOURCE = "consolidation"


def text_of(row: ProposalRow, evidence: tuple[str, ...]) -> str:
    """The text of the procedure."""
    if row.kind == "procedure":
        return procedure_text(row.pattern, json.loads(row.steps), row.days, evidence)
    return skill_text(row.skill_of or "", row.pattern, row.action, row.days, evidence)


def address_of(row: ProposalRow) -> DocumentAddress:
    """The procedure of a proposed skill."""
    key = skill_key(row.skill_of or "", row.pattern)
    return DocumentAddress(row.workspace_id, Scope.CREW, owner_of(Scope.CREW, row.crew_id), TIER, key)


class Skills:
    """Writes and retracts procedures."""

    def __init__(self, node: Node) -> None:
        self._store = node.use(JournalStore)

    async def write(self, caller: Caller, row: ProposalRow, evidence: tuple[str, ...]) -> None:
        """Write the procedure.

        Raises:
            DocumentConflict: If another text has its key.
            CrewJournalError: As ``JournalStore.write``.
        """
        draft = Draft(
            address=address_of(row),
            content=text_of(row, evidence),
            source=SOURCE,
            write_id=derived_id("skill", 1, f"{row.workspace_id}/{row.proposal_id}"),
            given_id=True,
            expected_seq=0,
            derived_from=evidence,
            reason=f"the proposal {row.proposal_id} was approved",
        )
        await self._store.write(caller, draft)

    async def retract(self, caller: Caller, row: ProposalRow, reason: str) -> None:
        """Let the procedure read as empty."""
        gone = Draft(address=address_of(row), action=DocumentAction.RETRACT, source=SOURCE, reason=reason)
        await self._store.retract(caller, gone)


LISTED: Final = 500
"""Maximum number of proposals in a list."""
MIN_EVIDENCE: Final = 2
_ROWS: Final = f"""SELECT {PROPOSALS.names},
    (SELECT arg_max(decision || '/' || reason, seq) FROM {PROPOSAL_DECISIONS} d
        WHERE d.workspace_id = p.workspace_id AND d.proposal_id = p.proposal_id) AS decided,
    (SELECT coalesce(max(seq), 0) FROM {PROPOSAL_DECISIONS} d
        WHERE d.workspace_id = p.workspace_id AND d.proposal_id = p.proposal_id) AS decided_seq,
    (SELECT arg_max(rule_id, seq) FROM {RULES} r
        WHERE r.workspace_id = p.workspace_id AND p.proposal_id IN (r.proposal_id, r.settles)) AS rule_id,
    EXISTS (SELECT 1 FROM {RULES} r WHERE r.workspace_id = p.workspace_id AND r.settles = p.proposal_id),
    EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = p.workspace_id AND x.kind = 'entry' AND x.{PRESENT}
        AND x.target_id = p.proposal_id)
    OR EXISTS (SELECT 1 FROM {RETRACTIONS} x JOIN {RULES} r
            ON r.workspace_id = x.workspace_id AND r.rule_id = x.target_id
        WHERE x.workspace_id = p.workspace_id AND x.kind = 'entry' AND x.{PRESENT}
        AND p.proposal_id IN (r.proposal_id, r.settles))
    FROM {PROPOSALS} p WHERE p.workspace_id = $workspace AND ($id IS NULL OR p.proposal_id = $id)
    AND ($crew IS NULL OR p.crew_id = $crew) ORDER BY p.seq DESC"""
_EVIDENCE: Final = f"""SELECT id, entry_type, coalesce(publisher, '{UNRECORDED}'), agent_id, ts_ms, published_ms, summary
    FROM {ENTRIES}
    WHERE workspace_id = $workspace AND list_contains($ids, id) ORDER BY seq"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal, its state, and the sequence of the last decision (0 without a decision)."""

    row: ProposalRow
    state: ops.ProposalState
    reason: str
    rule_id: str | None
    decided_seq: int = 0

    @property
    def document(self) -> str | None:
        """Label of the procedure of a proposed skill."""
        return address_of(self.row).label if self.row.kind in ("skill", "procedure") else None

    @property
    def evidence(self) -> tuple[str, ...]:
        """Ids of the entries that show it."""
        return tuple(json.loads(self.row.evidence))


class Proposals:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._retractions = node.use(Retractions)
        self._skills = node.use(Skills)
        self._learned = Learned(node.views)
        self._expectations = node.use(Expectations)
        self._turn = asyncio.Lock()

    async def list(self, caller: Caller, request: ops.ProposalsRequest) -> ops.ProposalsAnswer:
        """The proposals of a workspace."""
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        proposals = await asyncio.to_thread(self._read, caller.workspace_id, None, request.crew_id)
        shown = [_shown(proposal) for proposal in proposals if request.state in (None, proposal.state)]
        return ops.ProposalsAnswer(proposals=tuple(shown[:LISTED]), view_seq=view_seq)

    async def explain(self, caller: Caller, request: ops.ExplainProposalRequest) -> ops.ProposalExplained:
        """A proposal with its evidence.

        Raises:
            NotFound: If there is no such proposal.
        """
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        proposal = await self._one(caller, request.proposal_id)
        entries = await asyncio.to_thread(self._entries, caller.workspace_id, proposal)
        return ops.ProposalExplained(
            proposal=_shown(proposal),
            entries=tuple(entries),
            gone=len(proposal.evidence) - len(entries),
            view_seq=view_seq,
        )

    async def diff(self, caller: Caller, request: ops.DiffProposalRequest) -> ops.ProposalDiff:
        """How an approval changes the rules in the crew's prompts or, for a skill, its procedure.

        Raises:
            NotFound: If there is no such proposal.
            ProposalNotPending: If it was decided.
        """
        view_seq = self._views.view_seq(LEARNING_PROJECTION)
        proposal = await self._one(caller, request.proposal_id, ops.ProposalState.PENDING)
        row = proposal.row
        if proposal.document is not None:
            return _difference("", text_of(row, proposal.evidence), view_seq)
        rules = await asyncio.to_thread(self._learned.rules, row.workspace_id, row.crew_id)
        if row.kind == "retirement":
            left = [rule for rule in rules if rule.rule_id != row.skill_of]
            return _difference(rules_text(rules), rules_text(left), view_seq)
        new = LearnedRule(
            rule_id=_rule_id(row),
            pattern=row.pattern,
            action=row.action,
            confidence=row.confidence,
            occurrences=len(proposal.evidence),
            days=row.days,
            promoted=False,
            finding=row.finding,
            authors=tuple(json.loads(row.authors)),
            publishers=tuple(json.loads(row.publishers)),
            reviewed=True,
        )
        proven = [rule for rule in rules if rule.promoted]
        others = [rule for rule in rules if not rule.promoted]
        before, after = rules_text(rules), rules_text(rules_shown([*proven, new, *others], RULES_SHOWN))
        return _difference(before, after, view_seq)

    async def approve(self, caller: Caller, request: ops.ApproveProposalRequest) -> ops.ProposalDecisionAnswer:
        """Record the rule, or write the procedure of a skill.

        Raises:
            NotFound: If there is no such proposal.
            ProposalNotPending: If it was decided.
            EvidenceGone: If fewer than two entries of its evidence exist.
            ExpectationsNotMet: If recalls do not return what the workspace expects, unless forced with a reason.
            CrewJournalError: As ``Storing.store``, for a skill.
        """
        async with self._turn:
            proposal = await self._one(caller, request.proposal_id, ops.ProposalState.PENDING)
            row = proposal.row
            if not (request.force and request.reason.strip()):
                await self._expectations.check(caller.workspace_id)
            if row.kind == "retirement":
                assert row.skill_of is not None
                reason = f"the proposal {row.proposal_id} to retire it was approved"
                await self._retractions.retract(caller, RetractRequest(entry_id=row.skill_of, reason=reason))
                decided = await self._decide(caller, proposal, "approved", request.reason)
                return _decision(proposal, ops.ProposalState.APPROVED, row.skill_of, decided)
            entries = await asyncio.to_thread(self._entries, caller.workspace_id, proposal)
            if len(entries) < MIN_EVIDENCE:
                raise EvidenceGone(
                    f"of the evidence of {row.proposal_id}, {len(entries)} entries exist",
                    hint="reject the proposal",
                    field="proposal_id",
                )
            evidence = tuple(entry.entry_id for entry in entries)
            if row.skill_of is not None:
                await self._skills.write(caller, row, proposal.evidence)
                decided = await self._decide(caller, proposal, "approved", request.reason)
                return _decision(proposal, ops.ProposalState.APPROVED, proposal.rule_id, decided)
            rule = RuleLearned(
                crew_id=row.crew_id,
                pattern=row.pattern,
                action=row.action,
                evidence=evidence,
                confidence=row.confidence,
                days=row.days,
                model=row.model,
                proposal_id=row.proposal_id,
                publishers=tuple(json.loads(row.publishers)),
                authors=tuple(json.loads(row.authors)),
                reason=request.reason,
            )
            decided = await self._node.decide(
                caller,
                rule,
                rule_summary(rule.pattern, rule.authors)[:MAX_SUMMARY],
                LEARNING_PROJECTION,
                entry_id=_rule_id(row),
                crew_id=row.crew_id,
                priority=Priority.HIGH,
                refs={EVIDENCE_REF: list(evidence), "derived_from": [row.proposal_id]},
            )
        return _decision(proposal, ops.ProposalState.APPROVED, decided.id, decided)

    async def reject(self, caller: Caller, request: ops.RejectProposalRequest) -> ops.ProposalDecisionAnswer:
        """Record the rejection.

        Raises:
            NotFound: If there is no such proposal.
            ProposalNotPending: If it was decided.
        """
        async with self._turn:
            proposal = await self._one(caller, request.proposal_id, ops.ProposalState.PENDING)
            decided = await self._decide(caller, proposal, "rejected", request.reason)
        return _decision(proposal, ops.ProposalState.REJECTED, None, decided)

    async def undo(self, caller: Caller, request: ops.UndoProposalRequest) -> ops.ProposalDecisionAnswer:
        """Retract the rule or procedure of an approved proposal, or make a rejected proposal pending again.

        Raises:
            NotFound: If there is no such proposal.
            ProposalNotPending: If there is no decision, or the rule is already retracted.
        """
        async with self._turn:
            proposal = await self._one(
                caller, request.proposal_id, ops.ProposalState.APPROVED, ops.ProposalState.REJECTED
            )
            if proposal.state is ops.ProposalState.REJECTED:
                decided = await self._decide(caller, proposal, "reopened", request.reason)
                return _decision(proposal, ops.ProposalState.PENDING, None, decided)
            if proposal.row.kind == "retirement":
                assert proposal.row.skill_of is not None
                restore = RestoreRequest(entry_id=proposal.row.skill_of, reason=request.reason)
                await self._retractions.restore(caller, restore)
                decided = await self._decide(caller, proposal, "undone", request.reason)
                return _decision(proposal, ops.ProposalState.UNDONE, proposal.row.skill_of, decided)
            if proposal.row.skill_of is not None:
                await self._skills.retract(caller, proposal.row, request.reason)
                decided = await self._decide(caller, proposal, "undone", request.reason)
                return _decision(proposal, ops.ProposalState.UNDONE, proposal.row.skill_of, decided)
            assert proposal.rule_id is not None  # an approved proposal of a rule has its rule
            retract = RetractRequest(entry_id=proposal.rule_id, reason=request.reason)
            done = await self._retractions.retract(caller, retract)
        decided = Decided(proposal.rule_id, done.seq or 0, visible=done.visible)
        return _decision(proposal, ops.ProposalState.UNDONE, proposal.rule_id, decided)

    async def _decide(self, caller: Caller, proposal: Proposal, decision: Any, reason: str) -> Decided:
        """Record a decision; its id is derived from the previous decision, so that a repeated request records nothing."""
        proposal_id = proposal.row.proposal_id
        cause = f"{proposal.row.workspace_id}/{proposal_id}/{proposal.decided_seq}"
        return await self._node.decide(
            caller,
            ProposalDecided(proposal_id=proposal_id, decision=decision, reason=reason),
            f"The proposal {proposal_id} is {decision}",
            LEARNING_PROJECTION,
            entry_id=derived_id("proposal_decision", 1, cause),
            crew_id=proposal.row.crew_id,
        )

    async def _one(self, caller: Caller, proposal_id: str, *states: ops.ProposalState) -> Proposal:
        proposals = await asyncio.to_thread(self._read, caller.workspace_id, proposal_id, None)
        if not proposals:
            raise NotFound(
                f"there is no proposal {proposal_id}",
                hint="`crew-journal proposal list` lists them",
                field="proposal_id",
            )
        if states and proposals[0].state not in states:
            raise ProposalNotPending(
                f"the proposal {proposal_id} is {proposals[0].state}",
                hint="`crew-journal proposal undo` undoes a decision; a retracted rule is restored with `restore`",
                field="proposal_id",
            )
        return proposals[0]

    def _read(self, workspace_id: str, proposal_id: str | None, crew_id: str | None) -> Sequence[Proposal]:
        params = {"workspace": workspace_id, "id": proposal_id, "crew": crew_id}
        return [
            _proposal(ProposalRow(*row), decided, decided_seq, rule_id, settled=settled, retracted=retracted)
            for *row, decided, decided_seq, rule_id, settled, retracted in self._views.rows(_ROWS, params)
        ]

    def _entries(self, workspace_id: str, proposal: Proposal) -> Sequence[ops.EvidenceShown]:
        rows = self._views.rows(_EVIDENCE, {"workspace": workspace_id, "ids": list(proposal.evidence)})
        return [
            ops.EvidenceShown(
                entry_id=entry_id,
                entry_type=entry_type,
                author=author_shown(publisher, agent_id),
                ts=format_ms(ts_ms),
                received_at=format_ms(received_ms),
                summary=summary,
            )
            for entry_id, entry_type, publisher, agent_id, ts_ms, received_ms, summary in rows
        ]


_OF_SKILL: Final = {
    "approved": ops.ProposalState.APPROVED,
    "rejected": ops.ProposalState.REJECTED,
    "undone": ops.ProposalState.UNDONE,
}
"""States of a proposed skill by its last decision."""


def _proposal(
    row: ProposalRow, decided: str | None, decided_seq: int, rule_id: str | None, *, settled: bool, retracted: bool
) -> Proposal:
    decision, _, reason = (decided or "").partition("/")
    if row.skill_of is not None:
        state = _OF_SKILL.get(decision, ops.ProposalState.PENDING)
        rule_id = None if row.kind == "procedure" else row.skill_of
    elif retracted:
        state = ops.ProposalState.UNDONE
    elif rule_id is not None:
        state = ops.ProposalState.LEARNED if settled else ops.ProposalState.APPROVED
    else:
        state = ops.ProposalState.REJECTED if decision == "rejected" else ops.ProposalState.PENDING
    return Proposal(row, state, reason, rule_id, int(decided_seq))


def _rule_id(row: ProposalRow) -> str:
    return derived_id("proposal", 1, f"{row.workspace_id}/{row.proposal_id}")


def _shown(proposal: Proposal) -> ops.ProposalShown:
    row = proposal.row
    return ops.ProposalShown(
        proposal_id=row.proposal_id,
        crew_id=row.crew_id,
        pattern=row.pattern,
        action=row.action,
        confidence=row.confidence,
        evidence=proposal.evidence,
        days=row.days,
        model=row.model,
        finding=row.finding,
        state=proposal.state,
        reason=proposal.reason,
        rule_id=proposal.rule_id,
        authors=tuple(json.loads(row.authors)),
        kind=cast("Any", row.kind),
        steps=tuple(json.loads(row.steps)),
        document=proposal.document,
        made_at=format_ms(row.made_ms),
    )


def _decision(
    proposal: Proposal, state: ops.ProposalState, rule_id: str | None, decided: Decided
) -> ops.ProposalDecisionAnswer:
    return ops.ProposalDecisionAnswer(
        proposal_id=proposal.row.proposal_id,
        state=state,
        rule_id=rule_id,
        document=proposal.document,
        seq=decided.seq,
        visible=decided.visible,
    )


def _difference(before: str, after: str, view_seq: int) -> ops.ProposalDiff:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "now", "after approval", n=1)
    return ops.ProposalDiff(before=before, after=after, diff="".join(lines), view_seq=view_seq)


ANSWERS: Final[Answers] = (
    (LIST_PROPOSALS, Proposals.list),
    (ops.EXPLAIN_PROPOSAL, Proposals.explain),
    (ops.DIFF_PROPOSAL, Proposals.diff),
    (ops.APPROVE_PROPOSAL, Proposals.approve),
    (ops.REJECT_PROPOSAL, Proposals.reject),
    (ops.UNDO_PROPOSAL, Proposals.undo),
)
