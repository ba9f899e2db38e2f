"""Asserting and retracting relations between two entries, by people and agents.

Invariant: both entries are first looked up with the caller's token, so that the caller can relate only entries that it
may read and learns nothing about others. A relation is recorded as a control entry; only the fold creates the edge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Role
from ...schemas.core.timestamps import format_ms
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.relations import operations as ops
from ...schemas.relations.events import RelationAsserted, RelationRetracted
from ...schemas.relations.operations import GraphAnswer, GraphEdge, GraphNode, GraphRequest
from ...schemas.relations.rules import SIMILAR, SUPERSEDES, Authority, RelationState, is_turned
from ...schemas.relations.tables import RELATIONS, RELATIONS_PROJECTION
from ..desk import Caller
from ..entries.filters import Visible
from ..entries.queries import JournalQueries
from ..node import Answers, Decided, Node

# Reads the entries around an entry in the graph of relations.


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


_EDGE: Final = f"""SELECT state, weight, created_at, authority FROM {RELATIONS}
    WHERE workspace_id = ? AND relation = ? AND src_entry_id = ? AND dst_entry_id = ?"""
_SAID: Final = f"""SELECT seq, published_ms, entry_type = '{RelationAsserted.ENTRY_TYPE}' AS asserts, actor_type, actor_id
    FROM {ENTRIES} WHERE workspace_id = ? AND control
    AND entry_type IN ('{RelationAsserted.ENTRY_TYPE}', '{RelationRetracted.ENTRY_TYPE}') AND (payload->>'relation') = ?
    AND (payload->>'src_entry_id') = ? AND (payload->>'dst_entry_id') = ?"""
"""Query for all assertions and retractions of a relation."""
_ASSERTED_BY: Final = f"""WITH said AS ({_SAID}) SELECT DISTINCT actor_type, actor_id, (SELECT min(published_ms) FROM said)
    FROM said WHERE asserts AND seq > (SELECT coalesce(max(seq), 0) FROM said WHERE NOT asserts)"""
"""Query for the authors of assertions since the last retraction, and for the time of the first assertion."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """Two entries that the caller may read, in the stored order of the edge, and their crew if it is the same."""

    workspace_id: str
    src_entry_id: str
    src_seq: int
    dst_entry_id: str
    dst_seq: int
    crew_id: str | None

    def edge(self, relation: str) -> list[str]:
        """What names the edge between them."""
        return [self.workspace_id, relation, self.src_entry_id, self.dst_entry_id]


class Relations:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._queries = node.queries
        self._graph = GraphQueries(node.views, node.queries)

    async def relate(self, caller: Caller, request: ops.RelateRequest) -> ops.RelationAnswer:
        """Record how an entry relates to another one; returns after the ack.

        Raises:
            NotFound: If there is no such entry, or the token may not see it; the error is the same.
            NotAllowed: If the role may not assert this relation, an OWNER or ADMIN has asserted or retracted it, or the
                workspace is another.
            InvalidQuery: If both ids name the same entry.
        """
        if request.relation in (SIMILAR, SUPERSEDES) and caller.principal.role is Role.AGENT:
            raise NotAllowed(
                "a token of role AGENT may assert contradicts and supports",
                hint="similar follows from the vectors, and an agent names what an entry supersedes when it writes it; "
                "ask a LEAD, ADMIN or OWNER",
                field="relation",
            )
        ends = await self._ends(caller, request)
        if not caller.administers:
            known = await self._known(ends.edge(request.relation))
            if known and known[0][3] == Authority.OPERATOR:
                raise NotAllowed(
                    "an OWNER or ADMIN has asserted how these two relate, which takes precedence",
                    hint="ask an OWNER or ADMIN to change it",
                )
        relation_asserted = RelationAsserted(
            src_entry_id=ends.src_entry_id,
            src_seq=ends.src_seq,
            dst_entry_id=ends.dst_entry_id,
            dst_seq=ends.dst_seq,
            relation=request.relation,
            weight=request.weight,
            reason=request.reason,
        )
        recorded = await self._record(caller, ends, relation_asserted, f"{request.relation} is asserted")
        return _answer(ends, request.relation, RelationState.ASSERTED, request.weight, request.reason, recorded.seq)

    async def retract(self, caller: Caller, request: ops.UnrelateRequest) -> ops.RelationAnswer:
        """Record the retraction of a relation; returns after the ack.

        Raises:
            NotFound: If there is no such relation between entries that the token may see.
            NotAllowed: If the caller is neither OWNER nor ADMIN and is not the only author of the relation.
            InvalidQuery: If both ids name the same entry.
        """
        ends = await self._ends(caller, request)
        edge = ends.edge(request.relation)
        rows = await self._known(edge)
        if not rows or rows[0][0] == RelationState.RETRACTED:
            raise NotFound(
                f"no relation {request.relation} between these two entries",
                hint="see the graph of the entry; pass min_seq for one that was just asserted",
            )
        state, weight, created_ms, _ = rows[0]
        own = state == RelationState.ASSERTED and await self._is_its_word(caller, edge, created_ms)
        if not caller.administers and not own:
            raise NotAllowed(
                "only an OWNER, an ADMIN or the agent that alone asserted the relation may retract it",
                hint="assert the relation that holds instead, with a reason",
            )
        relation_retracted = RelationRetracted(
            src_entry_id=ends.src_entry_id,
            src_seq=ends.src_seq,
            dst_entry_id=ends.dst_entry_id,
            dst_seq=ends.dst_seq,
            relation=request.relation,
            reason=request.reason,
        )
        recorded = await self._record(caller, ends, relation_retracted, f"{request.relation} is retracted")
        return _answer(ends, request.relation, RelationState.RETRACTED, weight, request.reason, recorded.seq)

    async def graph(self, caller: Caller, request: ops.GraphRequest) -> ops.GraphAnswer:
        """The relations around an entry; raises as ``GraphQueries.graph``."""
        return await self._graph.graph(caller, request)

    async def _ends(self, caller: Caller, request: ops.RelateRequest | ops.UnrelateRequest) -> _Ends:
        workspace_id = caller.workspace_id
        source, target = [
            (await self._queries.get(caller.principal, name, workspace=workspace_id)).entry
            for name in (request.entry_id, request.dst_entry_id)
        ]
        if source.id == target.id:
            raise InvalidQuery(
                "an entry has no relation to itself", hint="name another dst_entry_id", field="dst_entry_id"
            )
        if is_turned(request.relation, source.seq, target.seq):
            source, target = target, source
        crews: list[Mapping[str, Any]] = [source.record, target.record]
        crew_id = crews[0]["crew_id"] if crews[0]["crew_id"] == crews[1]["crew_id"] else None
        return _Ends(workspace_id, source.id, source.seq, target.id, target.seq, crew_id)

    async def _known(self, edge: list[str]) -> Sequence[tuple[Any, ...]]:
        """The edge's row, if there is one."""
        return await asyncio.to_thread(self._views.rows, _EDGE, edge)

    async def _is_its_word(self, caller: Caller, edge: list[str], created_ms: int) -> bool:
        """Whether the caller is the only author of the relation.

        Repeating the assertion of another caller or of a reactor must not give the right to retract it.
        """
        rows = await asyncio.to_thread(self._views.rows, _ASSERTED_BY, edge)
        kind, actor = caller.acts_as
        return rows == [(kind.value, actor, created_ms)]

    async def _record(self, caller: Caller, ends: _Ends, payload: ControlPayload, what: str) -> Decided:
        return await self._node.decide(
            caller,
            payload,
            f"{what}: {ends.src_entry_id} and {ends.dst_entry_id}",
            crew_id=ends.crew_id,
            agent_id=caller.principal.agent_id,
        )


def _answer(
    ends: _Ends, relation: str, state: RelationState, weight: float, reason: str, seq: int
) -> ops.RelationAnswer:
    return ops.RelationAnswer(
        src_entry_id=ends.src_entry_id,
        dst_entry_id=ends.dst_entry_id,
        relation=relation,
        state=state.value,
        weight=weight,
        reason=reason,
        seq=seq,
    )


ANSWERS: Final[Answers] = (
    (ops.RELATE, Relations.relate),
    (ops.UNRELATE, Relations.retract),
    (ops.GRAPH, Relations.graph),
)
