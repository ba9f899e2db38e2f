"""What both flavours of the client can do about relations and agents.

Invariant: as of ``journalling``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from crew_journal.schemas.api_relations import AgentAnswer, GraphAnswer, RelationAnswer
from crew_journal.services.client.core import ask, entry_path, params_of, said
from crew_journal.services.client.flavours import Call
from crew_journal.services.client.wire import Request, Steps


class RelationCalls:
    """Relations between entries, and agents."""

    @Call
    def relate(
        self,
        src: str,
        dst: str,
        relation: str,
        *,
        weight: float | None = None,
        reason: str = "",
        min_seq: int | None = None,
        workspace_id: str | None = None,
    ) -> Steps[RelationAnswer]:
        """Say that ``src`` is similar to, supports or contradicts ``dst``; outweighs what reactors find.

        Raises:
            NotFound: If there is no such entry, or none that the token may see.
        """
        given = {"dst_entry_id": dst, "relation": relation, "weight": weight, "reason": reason}
        body = said({**given, "min_seq": min_seq, "workspace_id": workspace_id})
        return ask(Request("POST", f"{entry_path(src)}/relations", json=body, repeatable=False), RelationAnswer)

    @Call
    def unrelate(
        self,
        src: str,
        dst: str,
        relation: str,
        *,
        reason: str = "",
        min_seq: int | None = None,
        workspace_id: str | None = None,
    ) -> Steps[RelationAnswer]:
        """Say that a relation does not hold any more; for administrators and whoever asserted it.

        Raises:
            NotFound: If there is no such relation.
        """
        given = {"dst_entry_id": dst, "relation": relation, "reason": reason}
        body = said({**given, "min_seq": min_seq, "workspace_id": workspace_id})
        return ask(Request("POST", f"{entry_path(src)}/relations/retract", json=body, repeatable=False), RelationAnswer)

    @Call
    def graph(
        self,
        entry_id: str,
        *,
        depth: int | None = None,
        relation: str | None = None,
        limit: int | None = None,
        min_seq: int | None = None,
        workspace_id: str | None = None,
    ) -> Steps[GraphAnswer]:
        """The entries within ``depth`` hops of one that the token may read, and the edges between them."""
        given = {"depth": depth, "relation": relation, "limit": limit, "min_seq": min_seq, "workspace_id": workspace_id}
        return ask(Request("GET", f"{entry_path(entry_id)}/graph", params_of(given)), GraphAnswer)

    @Call
    def register_agent(
        self,
        agent_id: str,
        *,
        crew_id: str | None = None,
        memory_walk_depth: int = 0,
        settings: Mapping[str, Any] | None = None,
        workspace_id: str | None = None,
    ) -> Steps[AgentAnswer]:
        """Register an agent's settings, whole: what is left out has its default."""
        given = {"crew_id": crew_id, "memory_walk_depth": memory_walk_depth, "settings": settings}
        body = said({**given, "workspace_id": workspace_id})
        return ask(Request("PUT", _agent_path(agent_id), json=body), AgentAnswer)

    @Call
    def agent(
        self, agent_id: str, *, min_seq: int | None = None, workspace_id: str | None = None
    ) -> Steps[AgentAnswer]:
        """An agent's settings.

        Raises:
            NotFound: If none is registered, or it is another's than the token's.
        """
        params = params_of({"min_seq": min_seq, "workspace_id": workspace_id})
        return ask(Request("GET", _agent_path(agent_id), params), AgentAnswer)


def _agent_path(agent_id: str) -> str:
    return f"/v1/agents/{quote(agent_id, safe='')}"
