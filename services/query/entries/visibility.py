"""Which entries a token may read: one predicate, in SQL for stored rows and in Python for live entries.

Invariant: every read of entries uses a ``Visible``, which names exactly one workspace; both forms agree (a property
test).
"""

from __future__ import annotations

from dataclasses import dataclass

from ....schemas.entry import JournalEntry
from ....schemas.principal import Principal, Role


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a WHERE clause and its parameters, in order."""

    sql: str
    params: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Visible:
    """The entries of one workspace that a token may read.

    Attributes:
        workspace_id: The workspace; never ``_system``.
        everything: Whether all entries are readable (OWNER, ADMIN).
        agent_id: The agent whose entries are readable (AGENT, LEAD).
        crew_id: The crew whose entries are readable, too (LEAD).
    """

    workspace_id: str
    everything: bool
    agent_id: str | None = None
    crew_id: str | None = None

    @classmethod
    def to(cls, principal: Principal, workspace: str | None) -> Visible:
        """What ``principal`` may read in the workspace of a request.

        Raises:
            NotAllowed: If the request names another workspace than the token's.
            InvalidQuery: If the name is not valid.
        """
        workspace_id = principal.workspace(workspace)
        if principal.role.administers:
            return cls(workspace_id, everything=True)
        crew = principal.crew_id if principal.role is Role.LEAD else None
        return cls(workspace_id, everything=False, agent_id=principal.agent_id, crew_id=crew)

    def condition(self) -> Condition:
        """The predicate over ``journal_entries``."""
        if self.everything:
            return Condition("workspace_id = ?", (self.workspace_id,))
        if self.crew_id is None:
            return Condition("workspace_id = ? AND agent_id = ?", (self.workspace_id, self.agent_id))
        return Condition(
            "workspace_id = ? AND (agent_id = ? OR crew_id = ?)", (self.workspace_id, self.agent_id, self.crew_id)
        )

    def shows(self, entry: JournalEntry) -> bool:
        """The same predicate for an entry."""
        if entry.workspace_id != self.workspace_id:
            return False
        if self.everything:
            return True
        own = entry.agent_id is not None and entry.agent_id == self.agent_id
        return own or (self.crew_id is not None and entry.crew_id == self.crew_id)
