"""What most use-cases need of the journal: to record a decision.

Invariant: they publish control entries only, through this port, so each can be tested without a broker.
"""

from __future__ import annotations

from typing import Protocol

from crew_journal.schemas.entry import ActorType, Severity
from crew_journal.schemas.events.control import ControlPayload
from crew_journal.services.journal.append import Appended


class Recorder(Protocol):
    """``append.Journal``, as far as decisions are recorded."""

    async def record(
        self,
        workspace_id: str,
        payload: ControlPayload,
        *,
        summary: str,
        entry_id: str | None = None,
        actor_type: ActorType = ActorType.SYSTEM,
        actor_id: str | None = None,
        severity: Severity = Severity.INFO,
        crew_id: str | None = None,
        agent_id: str | None = None,
    ) -> Appended:
        """Record a decision as a control entry; returns after the ack.

        Raises:
            EntryConflict: If ``entry_id`` is taken by another decision.
            BrokerUnavailable: If no ack came within the bound.
        """
        ...
