"""Registering agents: their settings, whole, as control entries.

Invariant: OWNER and ADMIN register; an agent may read its own settings; a foreign agent and an unknown one look alike.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from crew_journal.schemas.api_relations import AgentAnswer, AgentRequest
from crew_journal.schemas.entry import ActorType
from crew_journal.schemas.errors import InvalidQuery, NotAllowed, NotFound
from crew_journal.schemas.events.control import AgentRegistered
from crew_journal.schemas.ids import is_id
from crew_journal.schemas.ports import ViewReader
from crew_journal.schemas.principal import Principal
from crew_journal.schemas.settings import MIN_SEQ_WAIT_S
from crew_journal.schemas.views import AGENTS, AGENTS_PROJECTION
from crew_journal.services.journal.recorder import Recorder

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

    async def register(self, principal: Principal, agent_id: str, asked: AgentRequest) -> AgentAnswer:
        """Record an agent's settings; returns after the ack.

        Raises:
            NotAllowed: If the role does not administer, or the workspace is another.
            InvalidQuery: If ``agent_id`` is no id.
        """
        workspace_id = principal.workspace(asked.workspace_id)
        if not principal.role.administers:
            raise NotAllowed(
                f"a token of role {principal.role.value} registers no agents", hint="use an OWNER or ADMIN token"
            )
        if not is_id(agent_id):
            raise InvalidQuery("agent_id is no id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="agent_id")
        registered = AgentRegistered(
            agent_id=agent_id,
            crew_id=asked.crew_id,
            memory_walk_depth=asked.memory_walk_depth,
            settings=asked.settings,
        )
        recorded = await self._journal.record(
            workspace_id,
            registered,
            summary=f"agent {agent_id} is registered, walk depth {asked.memory_walk_depth}",
            actor_type=ActorType.USER,
            actor_id=principal.token_id,
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

    async def get(
        self, principal: Principal, agent_id: str, *, workspace: str | None = None, min_seq: int | None = None
    ) -> AgentAnswer:
        """An agent's settings.

        Raises:
            NotFound: If none is registered, or it is another's than the token's.
            NotAllowed: If the workspace is another.
            ViewsBehind: If the views do not pass ``min_seq`` in time.
        """
        workspace_id = principal.workspace(workspace)
        if min_seq:
            await self._views.wait_for(min_seq, MIN_SEQ_WAIT_S, AGENTS_PROJECTION)
        own = principal.role.administers or agent_id == principal.agent_id
        rows = await asyncio.to_thread(self._views.rows, _AGENT, [workspace_id, agent_id]) if own else []
        if not rows:
            raise NotFound(
                f"no agent {agent_id[:64]} is registered", hint="register it with `crew-journal agent create`"
            )
        crew_id, depth, settings, seq = rows[0]
        return AgentAnswer(
            agent_id=agent_id, crew_id=crew_id, memory_walk_depth=depth, settings=json.loads(settings), seq=seq
        )
