"""The use-case workspace settings: what OWNER and ADMIN of a workspace decide for it.

Invariant: settings are events (``workspace.configured``), whole: the last one counts, and nothing else remembers them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

from crew_journal.schemas.entry import ActorType
from crew_journal.schemas.errors import NotAllowed
from crew_journal.schemas.events.control import WorkspaceConfigured
from crew_journal.schemas.ports import ViewReader
from crew_journal.schemas.principal import Principal
from crew_journal.schemas.rules.nudges import COST_DEFAULT_USD
from crew_journal.schemas.settings import MIN_SEQ_WAIT_S
from crew_journal.schemas.views import NUDGES_PROJECTION, WORKSPACE_SETTINGS
from crew_journal.services.journal.recorder import Recorder

_SETTINGS: Final = f"SELECT cost_nudge_usd, settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """A workspace's settings.

    Attributes:
        workspace_id: The workspace.
        cost_nudge_usd: US dollars in 24 h above which an agent is nudged.
        view_seq: How far the views were that say so; after a change the sequence of the change.
    """

    workspace_id: str
    cost_nudge_usd: float
    view_seq: int


class WorkspaceSettingsService:
    """Reads and records settings.

    Args:
        views: The settings as folded.
        journal: Records changes.
        min_seq_wait_s: Seconds to wait for ``min_seq``.
    """

    def __init__(self, views: ViewReader, journal: Recorder, *, min_seq_wait_s: float = MIN_SEQ_WAIT_S) -> None:
        self._views = views
        self._journal = journal
        self._min_seq_wait_s = min_seq_wait_s
        self._changing = asyncio.Lock()

    async def get(
        self, principal: Principal, *, workspace: str | None = None, min_seq: int | None = None
    ) -> WorkspaceSettings:
        """The settings of a workspace; the defaults if nobody has configured it.

        Raises:
            NotAllowed: If the token does not administer, or is for another workspace.
            ViewsBehind: If ``min_seq`` was not reached in time.
        """
        workspace_id = _administered(principal, workspace)
        if min_seq:
            await self._views.wait_for(min_seq, self._min_seq_wait_s, NUDGES_PROJECTION)
        view_seq = self._views.view_seq(NUDGES_PROJECTION)
        usd, _ = await asyncio.to_thread(self._read, workspace_id)
        return WorkspaceSettings(workspace_id, usd, view_seq)

    async def put(
        self, principal: Principal, *, cost_nudge_usd: float, workspace: str | None = None
    ) -> WorkspaceSettings:
        """Record new settings and return after the ack; what else the workspace has configured stays.

        Raises:
            NotAllowed: If the token does not administer, or is for another workspace.
            BrokerUnavailable: If no ack came within the bound.
        """
        workspace_id = _administered(principal, workspace)
        async with self._changing:
            _, other = await asyncio.to_thread(self._read, workspace_id)
            recorded = await self._journal.record(
                workspace_id,
                WorkspaceConfigured(cost_nudge_usd=cost_nudge_usd, settings=other),
                summary=f"Settings of {workspace_id}: cost nudge above ${cost_nudge_usd:g} in 24 h",
                actor_type=ActorType.USER,
                actor_id=principal.token_id,
            )
        return WorkspaceSettings(workspace_id, cost_nudge_usd, recorded.seq)

    def _read(self, workspace_id: str) -> tuple[float, dict[str, Any]]:
        found = self._views.rows(_SETTINGS, [workspace_id])
        if not found:
            return COST_DEFAULT_USD, {}
        return float(found[0][0]), dict(json.loads(found[0][1]))


def _administered(principal: Principal, workspace: str | None) -> str:
    if not principal.role.administers:
        raise NotAllowed(
            f"a token of role {principal.role.value} does not administer", hint="use an OWNER or ADMIN token"
        )
    return principal.workspace(workspace)
