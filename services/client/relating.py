"""What both flavours of the client can do about relations and agents.

Invariant: no logic here: the steps are in ``core``, the flavour carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crew_journal.schemas.api_relations import AgentAnswer, GraphAnswer, RelationAnswer
from crew_journal.services.client import core
from crew_journal.services.client.flavours import Call
from crew_journal.services.client.wire import Steps


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
        said = {"dst_entry_id": dst, "relation": relation, "weight": weight, "reason": reason}
        said |= {"min_seq": min_seq, "workspace_id": workspace_id}
        return core.relate(src, said)

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
        said = {"dst_entry_id": dst, "relation": relation, "reason": reason}
        return core.unrelate(src, {**said, "min_seq": min_seq, "workspace_id": workspace_id})

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
        return core.graph(entry_id, given)

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
        return core.register_agent(agent_id, {**given, "workspace_id": workspace_id})

    @Call
    def agent(
        self, agent_id: str, *, min_seq: int | None = None, workspace_id: str | None = None
    ) -> Steps[AgentAnswer]:
        """An agent's settings.

        Raises:
            NotFound: If none is registered, or it is another's than the token's.
        """
        return core.agent(agent_id, {"min_seq": min_seq, "workspace_id": workspace_id})
