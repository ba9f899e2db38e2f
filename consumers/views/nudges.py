"""``nudges_offered`` and ``workspace_settings``: which nudge a session has had, and what a workspace wants.

Invariants: one row per workspace, agent, session and kind of nudge, the first offer's; the last configuration of a
workspace counts, whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.memory import NudgeOffered
from ...schemas.events.workspaces import WorkspaceConfigured
from ...schemas.views import NUDGES_OFFERED, NUDGES_PROJECTION, WORKSPACE_SETTINGS
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_OFFERED_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {NUDGES_OFFERED} (
    workspace_id VARCHAR NOT NULL, agent_id VARCHAR NOT NULL, session_id VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    offered_ms BIGINT NOT NULL, seq UBIGINT NOT NULL)"""
_SETTINGS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {WORKSPACE_SETTINGS} (
    workspace_id VARCHAR NOT NULL, cost_nudge_usd DOUBLE NOT NULL, settings VARCHAR NOT NULL, seq UBIGINT NOT NULL)"""


class NudgesProjection:
    """Folds ``memory.nudge_offered`` and ``workspace.configured``."""

    name: ClassVar[str] = NUDGES_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_OFFERED_DDL, _SETTINGS_DDL)
    tables: ClassVar[tuple[str, ...]] = (NUDGES_OFFERED, WORKSPACE_SETTINGS)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Note first offers and last configurations, in stream order."""
        for event in batch.control(NudgeOffered.ENTRY_TYPE):
            self._offered(event, tx)
        for event in batch.control(WorkspaceConfigured.ENTRY_TYPE):
            configured = payload_of(event, WorkspaceConfigured)
            tx.execute(f"DELETE FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?", [event.workspace_id])
            tx.execute(
                f"INSERT INTO {WORKSPACE_SETTINGS} (workspace_id, cost_nudge_usd, settings, seq) VALUES (?, ?, ?, ?)",
                [
                    event.workspace_id,
                    configured.cost_nudge_usd,
                    json.dumps(configured.settings, ensure_ascii=False, sort_keys=True),
                    event.seq,
                ],
            )

    def _offered(self, event: EntryRecorded, tx: FoldTransaction) -> None:
        offer = payload_of(event, NudgeOffered)
        key = [event.workspace_id, offer.agent_id, offer.session_id, offer.kind]
        if tx.rows(
            f"SELECT 1 FROM {NUDGES_OFFERED} WHERE workspace_id = ? AND agent_id = ? AND session_id = ? AND kind = ?",
            key,
        ):
            return
        tx.execute(
            f"INSERT INTO {NUDGES_OFFERED} (workspace_id, agent_id, session_id, kind, offered_ms, seq) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [*key, event.ts_ms, event.seq],
        )


PROJECTION = NudgesProjection
