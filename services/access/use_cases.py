"""The use-cases of agents, crews and workspaces: their registrations and settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from ...schemas.access import operations as ops
from ...schemas.access.events import AgentRegistered, CrewRegistered, WorkspaceConfigured
from ...schemas.access.operations import WORKSPACE_SETTINGS as READ_SETTINGS
from ...schemas.access.tables import AGENTS_PROJECTION, NUDGES_PROJECTION, TOKENS, WORKSPACE_SETTINGS, AgentRow, CrewRow
from ...schemas.context.nudges import COST_DEFAULT_USD
from ...schemas.context.salience import Weights
from ...schemas.core.errors import FieldProblem, InvalidRequest, NotFound, RegisteredMeanwhile
from ...schemas.core.ids import derived_id
from ...schemas.core.operation import is_switch
from ...schemas.core.principal import Principal, Role
from ...schemas.core.recorded_settings import AgentRole, WorkspaceSettings
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.entries.tables import EMBED_POLICIES, ENTRIES, ENTRIES_PROJECTION
from ...schemas.models.rules import FIRST, embeds_speech
from ...schemas.sweeps.rules import INDEX
from ..desk import Caller
from ..documents.journal_store import Provision
from ..index.unknown_names import refuse_unknown_workspace
from ..node import Answers, Node
from ..recall.expectations import expectations_of
from ..registry import Registry
from ..sweeps.scheduler import DueTick, publish_tick

# Registers agents and crews: each registration is a control entry with all settings. Knows whether an agent's memory
# is on.
#
# Invariant: OWNER and ADMIN register; an agent may read its own settings and its crew's; the answer for another agent
# is the same as for an unknown agent. Memory is off unless a registration turns it on.


class Agents:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = node.use(Registry)
        self._provision = Provision(node.views, node.writer)
        self._changing = asyncio.Lock()
        self._last_change = 0

    async def memory_enabled(self, workspace_id: str, agent_id: str) -> bool | None:
        """Whether an agent's memory is on; None if the agent is not registered."""
        known = await self._registry.agent(workspace_id, agent_id)
        return None if known is None else known.memory_enabled

    async def enable_on_first_write(self, principal: Principal, workspace_id: str, agent_id: str) -> bool:
        """Whether the token's agent may write its memory; an unregistered one is registered with its memory on.

        Two simultaneous first writes record one registration, because its id is derived from the agent.

        Raises:
            BrokerUnavailable: If the registration could not be recorded.
        """
        known = await self.memory_enabled(workspace_id, agent_id)
        if known is None:
            crew_id = principal.crew_id
            role = AgentRole.LEAD if principal.role is Role.LEAD else AgentRole.AGENT
            registered = AgentRegistered(agent_id=agent_id, crew_id=crew_id, role=role, memory_enabled=True)
            decided = await self._node.decide(
                None,
                registered,
                f"agent {agent_id} is registered by the first write of its memory",
                AGENTS_PROJECTION,
                workspace_id=workspace_id,
                entry_id=derived_id("first_write", 1, f"{workspace_id}/{agent_id}"),
                crew_id=crew_id,
                agent_id=agent_id,
            )
            self._last_change = max(self._last_change, decided.seq)
        return known is not False

    async def register(self, caller: Caller, request: ops.RegisterAgentRequest) -> ops.AgentAnswer:
        """Record an agent's settings; returns once they can be read."""
        async with self._changing:
            given = request.model_dump(exclude={"workspace_id"})
            return await self._register(caller, AgentRegistered.model_validate(given))

    async def update(self, caller: Caller, request: ops.UpdateAgentRequest) -> ops.AgentAnswer:
        """Change the given settings of an agent; returns once they can be read.

        Raises:
            NotFound: If it is not registered.
            ViewsBehind: If the views do not show the previous change in time.
        """
        async with self._changing:
            await self._node.views.wait_for(self._last_change, self._node.wait_s, AGENTS_PROJECTION)
            known = await self._registry.agent(caller.workspace_id, request.agent_id)
            if known is None:
                raise _no_agent(request.agent_id)
            given = request.model_dump(exclude={"workspace_id"}, exclude_none=True)
            before = _agent_answer(known).model_dump(exclude={"seq"})
            return await self._register(caller, AgentRegistered.model_validate(before | given))

    async def get(self, caller: Caller, request: ops.AgentRequest) -> ops.AgentAnswer:
        """An agent's settings.

        Raises:
            NotFound: If it is not registered, or the token may not read it.
        """
        own = caller.administers or request.agent_id == caller.principal.agent_id
        known = await self._registry.agent(caller.workspace_id, request.agent_id) if own else None
        if known is None:
            raise _no_agent(request.agent_id)
        return _agent_answer(known)

    async def list(self, caller: Caller, request: ops.AgentsRequest) -> ops.AgentsAnswer:
        """The registered agents that the token may see."""
        view_seq = self._registry.view_seq
        rows = await self._registry.agents(caller.workspace_id, request.crew_id)
        own = caller.principal.agent_id
        shown = tuple(_agent_answer(row) for row in rows if caller.administers or row.agent_id == own)
        return ops.AgentsAnswer(agents=shown, view_seq=view_seq)

    async def _register(self, caller: Caller, agent: AgentRegistered) -> ops.AgentAnswer:
        memory = "on" if agent.memory_enabled else "off"
        decided = await self._node.decide(
            caller,
            agent,
            f"agent {agent.agent_id} is registered, memory {memory}, walk depth {agent.memory_walk_depth}",
            AGENTS_PROJECTION,
            crew_id=agent.crew_id,
            agent_id=agent.agent_id,
        )
        self._last_change = max(self._last_change, decided.seq)
        if agent.memory_enabled:
            await self._provision.provide(caller, agent.agent_id, agent.crew_id)
        return ops.AgentAnswer(**agent.model_dump(), seq=decided.seq)

    async def register_crew(self, caller: Caller, request: ops.RegisterCrewRequest) -> ops.CrewAnswer:
        """Record a crew's settings; returns once they can be read."""
        async with self._changing:
            crew = CrewRegistered(crew_id=request.crew_id, name=request.name, settings=request.settings)
            return await self._register_crew(caller, crew)

    async def update_crew(self, caller: Caller, request: ops.UpdateCrewRequest) -> ops.CrewAnswer:
        """Change the given settings of a crew; returns once they can be read.

        Raises:
            NotFound: If it is not registered.
            RegisteredMeanwhile: If its last registration is not the expected one.
            ViewsBehind: If the views do not show the previous change in time.
        """
        async with self._changing:
            await self._node.views.wait_for(self._last_change, self._node.wait_s, AGENTS_PROJECTION)
            known = await self._registry.crew(caller.workspace_id, request.crew_id)
            if known is None:
                raise _no_crew(request.crew_id)
            if request.expected_seq not in (None, known.since_seq):
                raise RegisteredMeanwhile(
                    f"crew {request.crew_id} was registered again at {known.since_seq}",
                    hint=f"read it again, then send expected_seq {known.since_seq}",
                    field="expected_seq",
                )
            merged = {**json.loads(known.settings), **(request.settings or {})}
            settings = {key: value for key, value in merged.items() if value is not None}
            crew = CrewRegistered(crew_id=request.crew_id, name=request.name or known.name, settings=settings)
            return await self._register_crew(caller, crew)

    async def _register_crew(self, caller: Caller, crew: CrewRegistered) -> ops.CrewAnswer:
        decided = await self._node.decide(
            caller, crew, f"crew {crew.crew_id} is registered", AGENTS_PROJECTION, crew_id=crew.crew_id
        )
        self._last_change = max(self._last_change, decided.seq)
        members = await self._members(caller.workspace_id, crew.crew_id)
        return ops.CrewAnswer(**crew.model_dump(), agents=members, seq=decided.seq)

    async def get_crew(self, caller: Caller, request: ops.CrewRequest) -> ops.CrewAnswer:
        """A crew's settings.

        Raises:
            NotFound: If it is not registered, or the token may not read it.
        """
        own = caller.administers or request.crew_id == caller.principal.crew_id
        known = await self._registry.crew(caller.workspace_id, request.crew_id) if own else None
        if known is None:
            raise _no_crew(request.crew_id)
        return await self._crew_answer(known)

    async def list_crews(self, caller: Caller, _asked: ops.CrewsRequest) -> ops.CrewsAnswer:
        """The registered crews that the token may see."""
        view_seq = self._registry.view_seq
        rows = await self._registry.crews(caller.workspace_id)
        own = caller.principal.crew_id
        shown = [await self._crew_answer(row) for row in rows if caller.administers or row.crew_id == own]
        return ops.CrewsAnswer(crews=tuple(shown), view_seq=view_seq)

    async def _members(self, workspace_id: str, crew_id: str) -> tuple[str, ...]:
        return tuple(row.agent_id for row in await self._registry.agents(workspace_id, crew_id))

    async def _crew_answer(self, row: CrewRow) -> ops.CrewAnswer:
        members = await self._members(row.workspace_id, row.crew_id)
        return ops.CrewAnswer(
            **row._asdict() | {"settings": json.loads(row.settings)}, agents=members, seq=row.since_seq
        )


def _agent_answer(row: AgentRow) -> ops.AgentAnswer:
    return ops.AgentAnswer(**row._asdict() | {"settings": json.loads(row.settings), "seq": row.since_seq})


def _no_agent(agent_id: str) -> NotFound:
    return NotFound(f"no agent {agent_id[:64]} is registered", hint="register it with `crew-journal agent create`")


def _no_crew(crew_id: str) -> NotFound:
    return NotFound(f"no crew {crew_id[:64]} is registered", hint="register it with `crew-journal crew create`")


# The use-cases of workspaces: their settings, which OWNER and ADMIN change, and their list.
#
# Invariant: settings are events (``workspace.configured``), each with all settings; the last one counts.


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
    expectations_of(chosen.expectations or {})
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
    (ops.REGISTER_AGENT, Agents.register),
    (ops.UPDATE_AGENT, Agents.update),
    (ops.AGENT, Agents.get),
    (ops.AGENTS, Agents.list),
    (ops.REGISTER_CREW, Agents.register_crew),
    (ops.UPDATE_CREW, Agents.update_crew),
    (ops.CREW, Agents.get_crew),
    (ops.CREWS, Agents.list_crews),
    (READ_SETTINGS, WorkspaceSettingsService.get),
    (ops.CONFIGURE_WORKSPACE, WorkspaceSettingsService.put),
    (ops.WORKSPACES, WorkspaceSettingsService.list),
)
