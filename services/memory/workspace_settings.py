"""The use-case workspace settings: what OWNER and ADMIN of a workspace decide for it.

Invariant: settings are events (``workspace.configured``), whole: the last one counts, and nothing else remembers them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from ...schemas.entry import ActorType
from ...schemas.events.workspaces import EVIDENCE_FLOOR, WorkspaceConfigured
from ...schemas.operations.workspaces import (
    ConfigureWorkspaceRequest,
    WorkspaceSettingsAnswer,
    WorkspaceSettingsRequest,
)
from ...schemas.ports import ViewReader
from ...schemas.rules.nudges import COST_DEFAULT_USD
from ...schemas.views import NUDGES_PROJECTION, WORKSPACE_SETTINGS
from ..desk import Caller
from ..journal.intake.recorder import Recorder

_SETTINGS: Final = f"SELECT cost_nudge_usd, settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


class WorkspaceSettingsService:
    """Reads and records settings.

    Args:
        views: The settings as folded.
        journal: Records changes.
    """

    def __init__(self, views: ViewReader, journal: Recorder) -> None:
        self._views = views
        self._journal = journal
        self._changing = asyncio.Lock()

    async def get(self, caller: Caller, _asked: WorkspaceSettingsRequest) -> WorkspaceSettingsAnswer:
        """The settings of a workspace; the defaults if it was not configured."""
        workspace_id = caller.workspace_id
        view_seq = self._views.view_seq(NUDGES_PROJECTION)
        usd, other = await asyncio.to_thread(self._read, workspace_id)
        return WorkspaceSettingsAnswer(
            workspace_id=workspace_id, cost_nudge_usd=usd, evidence_floor=other.get(EVIDENCE_FLOOR), view_seq=view_seq
        )

    async def put(self, caller: Caller, asked: ConfigureWorkspaceRequest) -> WorkspaceSettingsAnswer:
        """Record new settings and return after the ack; what else the workspace has configured stays.

        Raises:
            BrokerUnavailable: If no ack came within the bound.
        """
        workspace_id = caller.workspace_id
        async with self._changing:
            usd, other = await asyncio.to_thread(self._read, workspace_id)
            cost_nudge_usd = usd if asked.cost_nudge_usd is None else asked.cost_nudge_usd
            if asked.evidence_floor is not None:
                other[EVIDENCE_FLOOR] = asked.evidence_floor
            recorded = await self._journal.record(
                workspace_id,
                WorkspaceConfigured(cost_nudge_usd=cost_nudge_usd, settings=other),
                summary=f"Settings of {workspace_id}: cost nudge above ${cost_nudge_usd:g} in 24 h",
                actor_type=ActorType.USER,
                actor_id=caller.actor,
            )
        return WorkspaceSettingsAnswer(
            workspace_id=workspace_id,
            cost_nudge_usd=cost_nudge_usd,
            evidence_floor=other.get(EVIDENCE_FLOOR),
            view_seq=recorded.seq,
        )

    def _read(self, workspace_id: str) -> tuple[float, dict[str, Any]]:
        found = self._views.rows(_SETTINGS, [workspace_id])
        if not found:
            return COST_DEFAULT_USD, {}
        return float(found[0][0]), dict(json.loads(found[0][1]))
