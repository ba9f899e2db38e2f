"""``agents`` and ``crews``: the registrations of agents and crews, with their history.

Invariant: a registration contains all settings, so that the last registration of an agent or crew counts; the first
gives the time of registration.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.access.events import AgentRegistered, CrewRegistered
from ...schemas.access.tables import AGENTS, AGENTS_PROJECTION, CREWS, AgentRow, CrewRow
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Tables
from ..folds.payloads import decisions, json_text, succeed
from ..projection import Batch, FoldTransaction


class AgentsProjection:
    """Folds ``agent.registered`` and ``crew.registered``."""

    name: ClassVar = AGENTS_PROJECTION
    version: ClassVar = 2
    tables: ClassVar[Tables] = (AGENTS, CREWS)
    folds: ClassVar = (AgentRegistered, CrewRegistered)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Add each registration, which ends the previous one, in stream order."""
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, AgentRegistered):
                _register_agent(event, payload, tx)
            elif isinstance(payload, CrewRegistered):
                _register_crew(event, payload, tx)


def _register_agent(event: EntryRecorded, agent: AgentRegistered, tx: FoldTransaction) -> None:
    known = tx.get(AGENTS, workspace_id=event.workspace_id, agent_id=agent.agent_id, until_seq=None)
    fields = agent.model_dump(mode="json") | {"settings": json_text(agent.settings)}
    row = AgentRow(
        event.workspace_id,
        **fields,
        registered_ms=known[0].registered_ms if known else event.published_ms,
        updated_ms=event.published_ms,
        since_seq=event.seq,
    )
    succeed(tx, AGENTS, [row])


def _register_crew(event: EntryRecorded, crew: CrewRegistered, tx: FoldTransaction) -> None:
    known = tx.get(CREWS, workspace_id=event.workspace_id, crew_id=crew.crew_id, until_seq=None)
    fields = crew.model_dump(mode="json") | {"settings": json_text(crew.settings)}
    row = CrewRow(
        event.workspace_id,
        **fields,
        registered_ms=known[0].registered_ms if known else event.published_ms,
        updated_ms=event.published_ms,
        since_seq=event.seq,
    )
    succeed(tx, CREWS, [row])


PROJECTION = AgentsProjection
