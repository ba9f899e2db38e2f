"""Reads and writes the documents of a mirror over HTTP.

Invariant: every request names the owner, so that a document of agent ``support`` and one of crew ``support`` stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....schemas.core.errors import DocumentError, InvalidEntry, NotAllowed
from ....schemas.documents.operations import VERSIONS_MAX
from ....schemas.documents.rules import MIRROR, TIERS, MinRole, Scope, is_mirrored, tier_of_label
from .folder import Folder

if TYPE_CHECKING:
    from ....schemas.documents.operations import DocumentAnswer, DocumentShown, DocumentWrittenAnswer, VersionShown
    from ...client import CrewJournal

REFUSALS: Final = (DocumentError, NotAllowed, InvalidEntry)
"""Errors that say that a text is not accepted; sending it again does not help."""


@dataclass(frozen=True, slots=True)
class Side:
    """One owner's documents and their folder.

    Attributes:
        owner: ``a-<agent>`` or ``c-<crew>``, as lists name it.
        is_lead: Whether the agent may write documents of a crew's LEAD.
    """

    folder: Folder
    scope: Scope
    owner: str
    is_lead: bool


@dataclass(frozen=True, slots=True)
class MirroredDocument:
    """A document and its file."""

    side: Side
    label: str

    @property
    def name(self) -> str:
        """``agent/AGENT.md``: its name in the state."""
        return f"{self.side.scope.value}/{self.label}"

    @property
    def path(self) -> str:
        """Its file, for messages."""
        return str(self.side.folder.path_of(self.label))

    @property
    def tier_and_key(self) -> tuple[str, str | None]:
        """Tier and key."""
        named = tier_of_label(self.label)
        if named is None:
            raise ValueError(f"{self.label} is not a label")
        return named

    @property
    def read_only(self) -> str | None:
        """Why the file is not written to the journal; None if it is written.

        Documents of operators are read-only even with an operator's token, because the directory belongs to the agent.
        """
        rule = TIERS[self.tier_and_key[0]]
        if not rule.writable:
            return "is rendered from entries"
        writer = rule.writers[self.side.scope]
        if writer is MinRole.OPERATOR:
            return "is written by operators"
        if writer is MinRole.LEAD and not self.side.is_lead:
            return "is written by the lead of the crew (`crew-journal agent update AGENT --role lead`, or --lead)"
        return None


@dataclass(slots=True)
class MirrorService:
    """The requests of a mirror to the service.

    Attributes:
        journal: The client.
        owners: ``agent_id`` and ``crew_id`` of the mirror.
        workspace_id: The workspace; None for the token's workspace.
        reached: The highest sequence seen so far; requests wait until the views have passed it.
    """

    journal: CrewJournal
    owners: dict[str, str]
    workspace_id: str | None
    reached: int = 0

    def list(self) -> tuple[int, dict[tuple[str, str], DocumentShown]]:
        """The sequence that the views have reached, and (owner, label) → every mirrored document of its owners."""
        answer = self.journal.documents(
            agent_id=self.owners["agent_id"],
            crew_id=self.owners.get("crew_id"),
            workspace_id=self.workspace_id,
            min_seq=self.reached or None,
        )
        return answer.view_seq, {
            (document.owner, document.id): document for document in answer.documents if is_mirrored(document.tier)
        }

    def read(self, document: MirroredDocument, version: int | None = None) -> DocumentAnswer:
        """A document, or a version of it."""
        answer = self.journal.document_read(**self._named(document), version=version, min_seq=self.reached or None)
        self.reached = max(self.reached, answer.seq)
        return answer

    def versions(self, document: MirroredDocument) -> tuple[VersionShown, ...]:
        """Its newest versions."""
        return self.journal.document_versions(**self._named(document), limit=VERSIONS_MAX).versions

    def write(
        self,
        document: MirroredDocument,
        mode: str,
        content: bytes,
        write_id: str,
        *,
        expected_seq: int | None = None,
        reason: str = "",
    ) -> DocumentWrittenAnswer:
        """Write a document."""
        answer = self.journal.document_write(
            **self._named(document),
            mode=mode,
            content=content.decode(),
            write_id=write_id,
            expected_seq=expected_seq,
            reason=reason,
            source=MIRROR,
        )
        self.reached = max(self.reached, answer.seq)
        return answer

    def retract(self, document: MirroredDocument, reason: str) -> None:
        """Retract a document."""
        self.reached = max(self.reached, self.journal.document_retract(**self._named(document), reason=reason).seq)

    def _named(self, document: MirroredDocument) -> dict[str, Any]:
        tier, key = document.tier_and_key
        scope = document.side.scope
        field = f"{scope.value}_id"
        return {
            "tier": tier,
            "key": key,
            "scope": scope.value,
            field: self.owners[field],
            "workspace_id": self.workspace_id,
        }
