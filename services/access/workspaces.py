"""The use-cases of workspaces: their settings, which OWNER and ADMIN change, and their list.

Invariant: settings are events (``workspace.configured``), each with all settings; the last one counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from ...schemas.access import operations as ops
from ...schemas.access.events import WorkspaceConfigured
from ...schemas.access.operations import WORKSPACE_SETTINGS as READ_SETTINGS
from ...schemas.access.tables import NUDGES_PROJECTION, TOKENS, WORKSPACE_SETTINGS
from ...schemas.context.nudges import COST_DEFAULT_USD
from ...schemas.context.salience import Weights
from ...schemas.core.errors import FieldProblem, InvalidRequest
from ...schemas.core.operation import is_switch
from ...schemas.core.recorded_settings import WorkspaceSettings
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.entries.tables import EMBED_POLICIES, ENTRIES, ENTRIES_PROJECTION
from ...schemas.models.rules import FIRST, embeds_speech
from ...schemas.sweeps.rules import INDEX
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..node import Answers, Node
from ..sweeps.ticks import DueTick, publish_tick

_SETTINGS: Final = f"SELECT cost_nudge_usd, settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"
_WORKSPACES: Final = f"""SELECT workspace_id, count(ts_ms), count(DISTINCT agent_id), count(DISTINCT crew_id), max(ts_ms)
    FROM (SELECT workspace_id, agent_id, crew_id, ts_ms FROM {ENTRIES} UNION ALL
          SELECT workspace_id, NULL, NULL, NULL FROM {TOKENS} WHERE workspace_id IS NOT NULL)
    WHERE NOT starts_with(workspace_id, '_') AND ($1 IS NULL OR workspace_id = $1) GROUP BY ALL ORDER BY ALL"""

_COST: Final = "cost_nudge_usd"
"""The setting with a separate field in ``workspace.configured``; the others are in ``settings``."""
_POLICY: Final = f"SELECT policy FROM {EMBED_POLICIES} WHERE workspace_id = ?"
_OFF: Final = {name: False for name, field in WorkspaceSettings.model_fields.items() if is_switch(field.annotation)}
_DEFAULT: Final = WorkspaceConfigured(cost_nudge_usd=COST_DEFAULT_USD)


class WorkspaceSettingsService:
    """Reads and records settings."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._changing = asyncio.Lock()
        self._last_change = 0

    async def get(self, caller: Caller, _asked: ops.WorkspaceSettingsRequest) -> ops.WorkspaceSettingsAnswer:
        """The settings of a workspace; the defaults if it was not configured."""
        view_seq = self._views.view_seq(NUDGES_PROJECTION)
        configured = await asyncio.to_thread(self._read, caller.workspace_id)
        if configured is None:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        policy = await asyncio.to_thread(self._policy, caller.workspace_id)
        return _answer(caller.workspace_id, configured or _DEFAULT, policy, view_seq)

    async def put(self, caller: Caller, request: ops.ConfigureWorkspaceRequest) -> ops.WorkspaceSettingsAnswer:
        """Record new settings and return after the ack; other settings of the workspace stay.

        Raises:
            ViewsBehind: If the views do not show the change before this one in time.
            BrokerUnavailable: If no ack came within the bound.
        """
        workspace_id = caller.workspace_id
        async with self._changing:
            await self._views.wait_for(self._last_change, self._node.wait_s, NUDGES_PROJECTION)
            before = await asyncio.to_thread(self._read, workspace_id) or _DEFAULT
            settings = {name: value for name, value in before.settings.items() if name not in request.reset}
            usd = COST_DEFAULT_USD if _COST in request.reset else before.cost_nudge_usd
            settings |= request.model_dump(include=WorkspaceSettings.model_fields.keys() - {_COST}, exclude_none=True)
            _check(settings)
            usd = usd if request.cost_nudge_usd is None else request.cost_nudge_usd
            configured = WorkspaceConfigured(cost_nudge_usd=usd, settings=settings)
            policy = await asyncio.to_thread(self._policy, workspace_id)
            embeds = embeds_speech(policy, configured.chosen.embed_chat)
            chat = "chat is embedded" if embeds else "chat is not embedded"
            summary = f"Settings of {workspace_id}: cost nudge above ${usd:g} in 24 h, {chat}"
            decided = await self._node.decide(caller, configured, summary)
            self._last_change = decided.seq
        if embeds and not embeds_speech(policy, before.chosen.embed_chat):
            await publish_tick(self._node.journal, DueTick(to_ms(self._node.clock()), workspace_id, INDEX.name))
        return _answer(workspace_id, configured, policy, decided.seq)

    async def list(self, caller: Caller, _asked: ops.WorkspacesRequest) -> ops.WorkspacesAnswer:
        """The workspaces that have entries or tokens: the token's own, or all."""
        view_seq = self._views.view_seq(ENTRIES_PROJECTION)
        rows = await asyncio.to_thread(self._views.rows, _WORKSPACES, [caller.workspace_or_all])
        shown = tuple(
            ops.WorkspaceShown(
                workspace_id=name,
                entries=entries,
                agents=agents,
                crews=crews,
                last_entry=None if last_ms is None else format_ms(last_ms),
            )
            for name, entries, agents, crews, last_ms in rows
        )
        return ops.WorkspacesAnswer(workspaces=shown, view_seq=view_seq)

    def _read(self, workspace_id: str) -> WorkspaceConfigured | None:
        rows = self._views.rows(_SETTINGS, [workspace_id])
        if not rows:
            return None
        return WorkspaceConfigured(cost_nudge_usd=float(rows[0][0]), settings=json.loads(rows[0][1]))

    def _policy(self, workspace_id: str) -> int:
        """The version of the embed policy that a workspace uses."""
        rows = self._views.rows(_POLICY, [workspace_id])
        return int(rows[0][0]) if rows else FIRST


def _answer(
    workspace_id: str, configured: WorkspaceConfigured, policy: int, view_seq: int
) -> ops.WorkspaceSettingsAnswer:
    settings = {**_OFF, **configured.settings, _COST: configured.cost_nudge_usd}
    settings["embed_chat"] = embeds_speech(policy, configured.chosen.embed_chat)
    return ops.WorkspaceSettingsAnswer(**settings, workspace_id=workspace_id, view_seq=view_seq)


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse weights and budgets with which no context could be assembled.

    Raises:
        InvalidRequest: If they are not valid.
    """
    chosen = WorkspaceSettings.of(settings)
    try:
        Weights(**chosen.salience_weights or {})
    except (TypeError, ValueError) as error:
        fix = "give relevance, recency, confidence, usage, freshness or half_life_hours, numbers from 0"
        raise InvalidRequest((FieldProblem("salience_weights", str(error), fix),)) from None
    total, system = chosen.context_budget_tokens, chosen.context_system_tokens
    if total is not None and system is not None and system >= total:
        problem = f"reserves {system} of {total} tokens for the system"
        raise InvalidRequest((FieldProblem("context_system_tokens", problem, "give fewer than the whole budget"),))


ANSWERS: Final[Answers] = (
    (READ_SETTINGS, WorkspaceSettingsService.get),
    (ops.CONFIGURE_WORKSPACE, WorkspaceSettingsService.put),
    (ops.WORKSPACES, WorkspaceSettingsService.list),
)
