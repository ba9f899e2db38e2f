"""Reads the entries around an entry in the graph of relations.

Invariant: every node is an entry that the token may read; edges connect only such nodes; retracted edges are left out.
Paths through entries that the token may not read are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ....schemas.operations.relations import GraphAnswer, GraphEdge, GraphNode, GraphRequest
from ....schemas.ports import ViewReader
from ....schemas.rules.relations import RelationState
from ....schemas.timestamps import format_ms
from ....schemas.views import ENTRIES, ENTRIES_PROJECTION, RELATIONS, RELATIONS_PROJECTION
from ...desk import Caller
from .queries import JournalQueries
from .visibility import Visible

_LIVE: Final = f"workspace_id = ? AND state <> '{RelationState.RETRACTED.value}' AND (? IS NULL OR relation = ?)"
_AROUND: Final = f"""SELECT src_entry_id, dst_entry_id, weight FROM {RELATIONS}
    WHERE {_LIVE} AND (src_entry_id IN (SELECT unnest(?)) OR dst_entry_id IN (SELECT unnest(?)))"""
_BETWEEN: Final = f"""SELECT src_entry_id, dst_entry_id, relation, weight, state, reason, created_at FROM {RELATIONS}
    WHERE {_LIVE} AND src_entry_id IN (SELECT unnest(?)) AND dst_entry_id IN (SELECT unnest(?))
    ORDER BY src_seq DESC, weight DESC, dst_entry_id, relation"""
_NODES: Final = f"SELECT id, seq, ts_ms, entry_type, summary, agent_id, crew_id, actor_type, actor_id FROM {ENTRIES}"


class GraphQueries:
    """Reads the graph around an entry."""

    def __init__(self, views: ViewReader, queries: JournalQueries) -> None:
        self._views = views
        self._queries = queries

    async def graph(self, caller: Caller, request: GraphRequest) -> GraphAnswer:
        """The entries within ``depth`` hops of one, nearest and heaviest first, and the edges between them.

        Raises:
            NotFound: If the entry does not exist or the token may not read it.
        """
        visible = Visible.to(caller.principal, caller.workspace_id)
        await self._queries.get(caller.principal, request.entry_id, workspace=caller.workspace_id)
        view_seq = self._views.view_seq(ENTRIES_PROJECTION, RELATIONS_PROJECTION)
        nodes, edges, truncated = await asyncio.to_thread(self._walk, visible, request)
        return GraphAnswer(nodes=tuple(nodes), edges=tuple(edges), truncated=truncated, view_seq=view_seq)

    def _walk(self, visible: Visible, request: GraphRequest) -> tuple[list[GraphNode], list[GraphEdge], bool]:
        live: list[Any] = [visible.workspace_id, request.relation, request.relation]
        entry_id = request.entry_id
        nodes = self._nodes(visible, {entry_id: 1.0}, 0)
        seen = {entry_id}
        frontier = [entry_id]
        truncated = False
        for depth in range(1, request.depth + 1):
            best: dict[str, float] = {}
            for src, dst, weight in self._views.rows(_AROUND, [*live, frontier, frontier]):
                for other in (src, dst):
                    if other not in seen:
                        best[other] = max(weight, best.get(other, 0.0))
            if not best:
                break
            nodes_found = self._nodes(visible, best, depth)
            seen |= best.keys()
            room = request.limit - len(nodes)
            truncated = truncated or len(nodes_found) > room
            nodes += nodes_found[:room]
            frontier = [node.id for node in nodes_found[:room]]
            if not frontier:
                break
        ids = [node.id for node in nodes]
        edges = [_edge(row) for row in self._views.rows(_BETWEEN, [*live, ids, ids])]
        return nodes, edges, truncated

    def _nodes(self, visible: Visible, weights: dict[str, float], depth: int) -> list[GraphNode]:
        """The readable entries among some ids: heaviest edge first, then newer, then by id."""
        condition = visible.condition()
        sql = f"{_NODES} WHERE {condition.sql} AND id IN (SELECT unnest(?))"
        rows = self._views.rows(sql, [*condition.params, list(weights)])
        rows.sort(key=lambda row: (-weights[row[0]], -row[2], row[0]))
        return [
            GraphNode(
                id=name,
                seq=seq,
                ts=format_ms(ts_ms),
                entry_type=entry_type,
                summary=summary,
                agent_id=agent_id,
                crew_id=crew_id,
                actor_type=actor_type,
                actor_id=actor_id,
                depth=depth,
            )
            for name, seq, ts_ms, entry_type, summary, agent_id, crew_id, actor_type, actor_id in rows
        ]


def _edge(row: Sequence[Any]) -> GraphEdge:
    src, dst, relation, weight, state, reason, created_ms = row
    return GraphEdge(
        src=src,
        dst=dst,
        relation=relation,
        weight=weight,
        state=state,
        reason=reason,
        created_at=format_ms(created_ms),
    )
