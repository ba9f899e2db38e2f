"""``agents`` and ``crews``: the registrations of agents and crews, with their history.

Invariant: a registration contains all settings, so that the last registration of an agent or crew counts; the first
gives the time of registration.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...schemas.access.events import AgentRegistered, CrewRegistered
from ...schemas.access.tables import AGENTS, AGENTS_PROJECTION, CREWS
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Table, Tables
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
                _register(event, payload, tx, AGENTS, {"agent_id": payload.agent_id})
            elif isinstance(payload, CrewRegistered):
                _register(event, payload, tx, CREWS, {"crew_id": payload.crew_id})


def _register(
    event: EntryRecorded,
    payload: AgentRegistered | CrewRegistered,
    tx: FoldTransaction,
    table: Table[Any],
    name: dict[str, str],
) -> None:
    known = tx.get(table, workspace_id=event.workspace_id, **name, until_seq=None)
    row = table.row(
        event.workspace_id,
        **payload.model_dump(mode="json") | {"settings": json_text(payload.settings)},
        registered_ms=known[0].registered_ms if known else event.published_ms,
        updated_ms=event.published_ms,
        since_seq=event.seq,
    )
    succeed(tx, table, [row])


PROJECTION = AgentsProjection
