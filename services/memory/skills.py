"""Writes an approved skill as a procedure of its crew, and retracts it.

Invariant: the write id follows from the proposal, so an approval that is repeated writes nothing twice, and a procedure
that exists under the key already is never replaced.
"""

from __future__ import annotations

from ...schemas.events.documents import DocumentAction
from ...schemas.ids import derived_id
from ...schemas.rules.skills import skill_key, skill_text
from ...schemas.rules.tiers import Scope, owner_of
from ...schemas.views.learning import ProposalRow
from ..desk import Caller
from ..node import Node
from .documents.addressing import DocumentAddress
from .documents.drafts import Draft
from .documents.journal_store import JournalStore

TIER = "procedures"
SOURCE = "consolidation"


def text_of(row: ProposalRow, evidence: tuple[str, ...]) -> str:
    """The text of the procedure."""
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
