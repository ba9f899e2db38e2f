"""``agents`` and ``crews``: what is registered of each, as recall needs it.

Invariant: a registration is whole, so the last one of an agent or crew counts; the first says since when it is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.workspaces import AgentRegistered, CrewRegistered
from ...schemas.views import AGENTS, AGENTS_PROJECTION, CREWS
from ..folds.payloads import json_text, payload_of
from ..projection import Batch, FoldTransaction

_AGENTS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {AGENTS} (
    workspace_id VARCHAR NOT NULL, agent_id VARCHAR NOT NULL, crew_id VARCHAR, memory_walk_depth INTEGER NOT NULL,
    settings VARCHAR NOT NULL, registered_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL, seq UBIGINT NOT NULL)"""
_CREWS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {CREWS} (
    workspace_id VARCHAR NOT NULL, crew_id VARCHAR NOT NULL, settings VARCHAR NOT NULL,
    registered_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL, seq UBIGINT NOT NULL)"""


class AgentsProjection:
    """Folds ``agent.registered`` and ``crew.registered``."""

    name: ClassVar[str] = AGENTS_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_AGENTS_DDL, _CREWS_DDL)
    tables: ClassVar[tuple[str, ...]] = (AGENTS, CREWS)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Replace what is registered, in stream order."""
        for event in batch.controls:
            if event.entry.entry_type == AgentRegistered.ENTRY_TYPE:
                agent = payload_of(event, AgentRegistered)
                also = {"crew_id": agent.crew_id, "memory_walk_depth": agent.memory_walk_depth}
                _register(tx, event, AGENTS, "agent_id", agent.agent_id, also, agent.settings)
            elif event.entry.entry_type == CrewRegistered.ENTRY_TYPE:
                crew = payload_of(event, CrewRegistered)
                _register(tx, event, CREWS, "crew_id", crew.crew_id, {}, crew.settings)


def _register(
    tx: FoldTransaction,
    event: EntryRecorded,
    table: str,
    key: str,
    name: str,
    also: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    where, place = f"workspace_id = ? AND {key} = ?", [event.workspace_id, name]
    known = tx.rows(f"SELECT registered_ms FROM {table} WHERE {where}", place)
    tx.execute(f"DELETE FROM {table} WHERE {where}", place)
    row = {
        "workspace_id": event.workspace_id,
        key: name,
        **also,
        "settings": json_text(settings),
        "registered_ms": known[0][0] if known else event.published_ms,
        "updated_ms": event.published_ms,
        "seq": event.seq,
    }
    marks = ", ".join("?" for _ in row)
    tx.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


PROJECTION = AgentsProjection
