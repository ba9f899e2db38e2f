"""Registers agents and crews: each registration is a control entry with all settings. Knows whether an agent's memory is on.

Invariant: OWNER and ADMIN register; an agent may read its own settings and its crew's; the answer for another agent is
the same as for an unknown agent. Memory is off unless a registration turns it on.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from ...schemas.access import operations as ops
from ...schemas.access.events import AgentRegistered, CrewRegistered
from ...schemas.access.tables import AGENTS_PROJECTION, AgentRow, CrewRow
from ...schemas.core.errors import NotFound, RegisteredMeanwhile
from ...schemas.core.ids import derived_id
from ...schemas.core.principal import Principal, Role
from ...schemas.core.recorded_settings import AgentRole
from ..desk import Caller
from ..documents.writing import Provision
from ..node import Answers, Node
from ..registry import Registry


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


ANSWERS: Final[Answers] = (
    (ops.REGISTER_AGENT, Agents.register),
    (ops.UPDATE_AGENT, Agents.update),
    (ops.AGENT, Agents.get),
    (ops.AGENTS, Agents.list),
    (ops.REGISTER_CREW, Agents.register_crew),
    (ops.UPDATE_CREW, Agents.update_crew),
    (ops.CREW, Agents.get_crew),
    (ops.CREWS, Agents.list_crews),
)
