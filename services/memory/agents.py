"""Registering agents: their settings, whole, as control entries.

Invariant: OWNER and ADMIN register; an agent may read its own settings; a foreign agent and an unknown one look alike.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from ...schemas.entry import ActorType
from ...schemas.errors import NotFound
from ...schemas.events.workspaces import AgentRegistered
from ...schemas.operations.relations import AgentAnswer, AgentRequest, RegisterAgentRequest
from ...schemas.ports import ViewReader
from ...schemas.views import AGENTS
from ..desk import Caller
from ..journal.intake.recorder import Recorder

_AGENT: Final = (
    f"SELECT crew_id, memory_walk_depth, settings, seq FROM {AGENTS} WHERE workspace_id = ? AND agent_id = ?"
)


class Agents:
    """The use-cases.

    Args:
        views: The views.
        journal: Records decisions.
    """

    def __init__(self, views: ViewReader, journal: Recorder) -> None:
        self._views = views
        self._journal = journal

    async def register(self, caller: Caller, asked: RegisterAgentRequest) -> AgentAnswer:
        """Record an agent's settings; returns after the ack."""
        agent_id = asked.agent_id
        registered = AgentRegistered(
            agent_id=agent_id,
            crew_id=asked.crew_id,
            memory_walk_depth=asked.memory_walk_depth,
            settings=asked.settings,
        )
        recorded = await self._journal.record(
            caller.workspace_id,
            registered,
            summary=f"agent {agent_id} is registered, walk depth {asked.memory_walk_depth}",
            actor_type=ActorType.USER,
            actor_id=caller.actor,
            crew_id=asked.crew_id,
            agent_id=agent_id,
        )
        return AgentAnswer(
            agent_id=agent_id,
            crew_id=asked.crew_id,
            memory_walk_depth=asked.memory_walk_depth,
            settings=asked.settings,
            seq=recorded.seq,
        )

    async def get(self, caller: Caller, asked: AgentRequest) -> AgentAnswer:
        """An agent's settings.

        Raises:
            NotFound: If none is registered, or it is another's than the token's.
        """
        agent_id = asked.agent_id
        own = caller.administers or agent_id == caller.principal.agent_id
        rows = await asyncio.to_thread(self._views.rows, _AGENT, [caller.workspace_id, agent_id]) if own else []
        if not rows:
            raise NotFound(
                f"no agent {agent_id[:64]} is registered", hint="register it with `crew-journal agent create`"
            )
        crew_id, depth, settings, seq = rows[0]
        return AgentAnswer(
            agent_id=agent_id, crew_id=crew_id, memory_walk_depth=depth, settings=json.loads(settings), seq=seq
        )
