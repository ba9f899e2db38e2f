"""The documents and the registration of an agent's prompt as they were at a sequence.

Invariant: the result is the fold of the present stream up to that sequence. Blocking.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from ....schemas.ports import ViewReader
from ....schemas.rules.documents import finding_in
from ....schemas.rules.tiers import scope_of
from ....schemas.views import AGENTS, ENTRIES, VERSIONS
from ....schemas.views.table import as_of
from ....schemas.views.workspaces import AgentRow
from .addressing import DocumentAddress
from .history import History
from .owned import DocumentText, OwnedDocuments

_WRITTEN: Final = f"SELECT DISTINCT tier, doc_key FROM {VERSIONS} WHERE workspace_id = ? AND owner = ? AND seq <= ?"
_LAST_MS: Final = f"""SELECT max(published_ms) FROM (
    SELECT published_ms FROM {VERSIONS} WHERE workspace_id = $1 AND seq <= $2
    UNION ALL SELECT published_ms FROM {ENTRIES} WHERE workspace_id = $1 AND seq <= $2)"""
_AGENTS: Final = f"SELECT {AGENTS.names} FROM {AGENTS} WHERE workspace_id = ? AND "


class Past:
    """Reads a workspace as of a sequence.

    Args:
        views: The views.
        workspace_id: The workspace.
        seq: The sequence.
    """

    def __init__(self, views: ViewReader, workspace_id: str, seq: int) -> None:
        self._views = views
        self._workspace_id = workspace_id
        self._seq = seq
        self._history = History(views)

    def day(self) -> date | None:
        """The day (UTC) of the last event up to the sequence; None if there is none."""
        [(last_ms,)] = self._views.rows(_LAST_MS, [self._workspace_id, self._seq])
        return None if last_ms is None else datetime.fromtimestamp(last_ms / 1000, UTC).date()

    def agents(self) -> list[AgentRow]:
        """The agents that were registered."""
        return [AgentRow(*row) for row in self._views.rows(_AGENTS + as_of(self._seq), [self._workspace_id])]

    def documents(self, owner: str) -> OwnedDocuments:
        """The documents of an owner that had a text.

        Raises:
            VersionGone: If the text of one was swept.
        """
        owned_documents = OwnedDocuments()
        for tier, key in self._views.rows(_WRITTEN, [self._workspace_id, owner, self._seq]):
            address = DocumentAddress(self._workspace_id, scope_of(owner)[0], owner, tier, key)
            version = self._history.as_of(address, self._seq)
            if version is not None and version.bytes:
                text = self._history.text(address, version)
                owned_documents.rows[tier, key] = DocumentText(text, finding_in(text), version.seq)
        return owned_documents
