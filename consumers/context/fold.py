"""``nudges_offered`` and ``workspace_settings``: the nudges that a session was offered, and the settings of a workspace.

Invariants: one row per workspace, agent, session and kind of nudge, the first offer's; the last configuration of a
workspace counts, whole.
"""

from __future__ import annotations

import json
from typing import ClassVar

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.access.tables import (
    NUDGES_OFFERED,
    NUDGES_PROJECTION,
    WORKSPACE_SETTINGS,
    NudgeOfferedRow,
    WorkspaceSettingsRow,
)
from ...schemas.core.table import Tables
from ...schemas.recall.events import NudgeOffered
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class NudgesProjection:
    """Folds ``memory.nudge_offered`` and ``workspace.configured``."""

    name: ClassVar = NUDGES_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (NUDGES_OFFERED, WORKSPACE_SETTINGS)
    folds: ClassVar = (NudgeOffered, WorkspaceConfigured)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Note first offers and last configurations, in stream order."""
        for event, offer in decisions(batch, NudgeOffered):
            named = event.workspace_id, offer.agent_id, offer.session_id, offer.kind
            if not tx.get(NUDGES_OFFERED, **dict(zip(NUDGES_OFFERED.key, named, strict=True))):
                tx.add(NUDGES_OFFERED, [NudgeOfferedRow(*named, event.ts_ms, event.seq)])
        for event, configured in decisions(batch, WorkspaceConfigured):
            settings = json.dumps(configured.settings, ensure_ascii=False, sort_keys=True)
            row = WorkspaceSettingsRow(event.workspace_id, configured.cost_nudge_usd, settings, event.seq)
            tx.replace(WORKSPACE_SETTINGS, [row])


PROJECTION = NudgesProjection
