"""The knowledge graph: asserting, ending and asking facts, and naming entities.

Invariant: every assertion, end and name bears its actor. Writes of the knowledge graph happen one after the other, each
after the view shows the one before, so a fact without an end is in the graph once and the limits hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ...schemas.core.errors import FieldProblem, InvalidQuery, InvalidRequest
from ...schemas.core.ids import name_key, uuid7_hex
from ...schemas.core.operation import Request
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.facts import operations as ops
from ...schemas.facts.events import MAX_NAME, MAX_REASON, EntityNamed, FactAsserted, FactEnded, FactEntity, FactType
from ...schemas.facts.names import (
    GENERAL_TYPE,
    MAX_ENTITIES,
    MAX_FACTS,
    Span,
    before,
    check_interval,
    entity_id,
    span_of,
)
from ...schemas.facts.rules import declared_single
from ...schemas.facts.tables import ENTITY_TEXTS, FACTS, FACTS_PROJECTION, KG_ENTITIES, EntityRow, FactRow
from ..desk import Author, Caller, Q, check_may_change, may_change
from ..index.query_embedding import QueryVector
from ..journal.intake.secrets import storable
from ..node import Answers, Node
from ..recall.finding import cosine_floor

# Reads the knowledge graph from the views, as of now or of a sequence.


_EVERY: Final = "true"
_HELD: Final = "(f.from_ms IS NULL OR f.from_ms <= $last) AND (f.to_ms IS NULL OR f.to_ms >= $first)"
LATEST_FIRST: Final = "f.asserted_seq DESC"
BY_START: Final = "f.from_ms NULLS LAST, f.asserted_seq"

Shown = tuple[FactRow, str, str]
"""A fact with the names of its two ends."""


class FactReader:
    """The queries.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    @property
    def view_seq(self) -> int:
        """The sequence that the view has reached."""
        return self._views.view_seq(FACTS_PROJECTION)

    async def entity(self, workspace_id: str, name: str) -> EntityRow | None:
        """The entity that a name or an alias means."""
        row = await self.of_id(workspace_id, entity_id(name))
        return row if row is None or row.alias_of is None else await self.of_id(workspace_id, row.alias_of)

    async def aliases(self, workspace_id: str, root_id: str) -> list[EntityRow]:
        """The aliases of an entity, by name."""
        sql = f"SELECT {KG_ENTITIES.names} FROM {KG_ENTITIES} WHERE workspace_id = ? AND alias_of = ? AND {PRESENT}"
        return sorted((EntityRow(*row) for row in await self._rows(sql, [workspace_id, root_id])), key=lambda r: r.name)

    async def row(self, workspace_id: str, name: str) -> EntityRow | None:
        """The entity of exactly this name, although it may be an alias."""
        return await self.of_id(workspace_id, entity_id(name))

    async def of_id(self, workspace_id: str, wanted: str) -> EntityRow | None:
        """An entity by its id."""
        sql = f"SELECT {KG_ENTITIES.names} FROM {KG_ENTITIES} WHERE key = ? AND workspace_id = ? AND {PRESENT}"
        rows = await self._rows(sql, [name_key((workspace_id, wanted)), workspace_id])
        return EntityRow(*rows[0]) if rows else None

    async def facts(
        self,
        workspace_id: str,
        *,
        limit: int,
        order: str,
        about: str | None = None,
        direction: str = "both",
        span: Span | None = None,
    ) -> list[Shown]:
        """Facts with the names of their ends.

        Args:
            workspace_id: The workspace.
            limit: Most facts.
            order: ``LATEST_FIRST`` or ``BY_START``.
            about: Id of an entity, not of an alias; facts about its aliases are facts about it.
            direction: In which the entity is subject (outgoing), object (incoming) or either.
            span: Only facts that held at some time in it.
        """
        ends = {"outgoing": "s.root = $about", "incoming": "o.root = $about"}
        about_sql = _EVERY if about is None else ends.get(direction, "(s.root = $about OR o.root = $about)")
        given = {"ws": workspace_id, "about": about, "first": span and span.first_ms, "last": span and span.last_ms}
        used = {name: value for name, value in given.items() if name == "ws" or value is not None}
        names = ", ".join(f"f.{column.name}" for column in FACTS.columns)
        sql = f"""WITH known AS (SELECT * FROM {KG_ENTITIES} WHERE workspace_id = $ws AND {PRESENT}),
            named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS name
                FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of)
            SELECT s.name, o.name, {names} FROM (FROM {FACTS} WHERE {PRESENT}) f
            JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id
            WHERE f.workspace_id = $ws AND {about_sql} AND {_EVERY if span is None else _HELD}
            ORDER BY {order} LIMIT {limit:d}"""
        return [(FactRow(*rest), subject, object_) for subject, object_, *rest in await self._rows(sql, used)]

    async def open_facts(self, workspace_id: str, subject: str, predicate: str, object_: str) -> list[FactRow]:
        """The facts between two names that have no end, by the time of their assertion."""
        return await self._open(workspace_id, subject, predicate, object_, "IN")

    async def open_others(self, workspace_id: str, subject: str, predicate: str, object_: str) -> list[FactRow]:
        """The facts of a subject and a predicate with another object that have no end, likewise."""
        return await self._open(workspace_id, subject, predicate, object_, "NOT IN")

    async def _open(self, workspace_id: str, subject: str, predicate: str, object_: str, among: str) -> list[FactRow]:
        ids = []
        for name in (subject, object_):
            row = await self.entity(workspace_id, name)
            root = row.entity_id if row else entity_id(name)
            ids.append([root, *(one.entity_id for one in await self.aliases(workspace_id, root))])
        sql = f"""SELECT {FACTS.names} FROM {FACTS} WHERE workspace_id = ? AND {PRESENT} AND valid_to IS NULL
            AND predicate = ? AND subject_id IN (SELECT unnest(?)) AND object_id {among} (SELECT unnest(?))
            ORDER BY asserted_seq"""
        return [FactRow(*row) for row in await self._rows(sql, [workspace_id, predicate, *ids])]

    async def counts(self, workspace_id: str) -> tuple[int, int, int, tuple[str, ...]]:
        """Numbers of entities, of facts and of those without an end; the predicates in order."""
        entities = f"SELECT count(*) FROM {KG_ENTITIES} WHERE workspace_id = ? AND alias_of IS NULL AND {PRESENT}"
        facts = f"""SELECT count(*), count(*) FILTER (valid_to IS NULL), list_sort(list(DISTINCT predicate))
            FROM {FACTS} WHERE workspace_id = ? AND {PRESENT}"""
        [(known,)] = await self._rows(entities, [workspace_id])
        [(triples, current, predicates)] = await self._rows(facts, [workspace_id])
        return known, triples, current, tuple(predicates or ())

    async def _rows(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._views.rows, sql, params)


# Finds the entity that a description means, by the cosine of its vector.


LEAST_COSINE: Final = 0.4
_VECTORS: Final = f"""SELECT item, vector FROM {ENTITY_TEXTS} JOIN {CHUNK_VECTORS} USING (workspace_id, text_hash)
    WHERE workspace_id = ? AND model = ? AND dim = ? ORDER BY item DESC"""


class Meant(NamedTuple):
    """An entity and its cosine with the description."""

    entity_id: str
    cosine: float


class EntityFinder:
    """The search."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._embed = node.recall.embed

    async def find(self, workspace_id: str, text: str) -> Meant | None:
        """The nearest entity, if it is near enough."""
        query = await self._embed(workspace_id, text)
        return None if query is None else await asyncio.to_thread(self._nearest, workspace_id, query)

    def _nearest(self, workspace_id: str, query: QueryVector) -> Meant | None:
        rows = self._views.rows(_VECTORS, [workspace_id, query.model, len(query.vector)])
        if not rows:
            return None
        cosines = np.frombuffer(b"".join(row[1] for row in rows), "<f4").reshape(len(rows), -1) @ query.vector
        best = int(cosines.argmax())
        if cosines[best] < max(LEAST_COSINE, cosine_floor(cosines, query.model)):
            return None
        return Meant(rows[best][0], float(cosines[best]))


@dataclass(frozen=True, slots=True)
class LayeredFields:
    """The fields of a fact (``FactAsserted``) that only layered memory sets."""

    namespace: str = ""
    text: str | None = None
    fact_type: FactType = FactType.DEFAULT
    half_life_hours: float | None = None
    single_valued: bool = False


PLAIN: Final = LayeredFields()


class KnowledgeGraph:
    """The use-cases.

    Args:
        node: What use-cases share.
        max_entities: Most entities of a workspace.
        max_facts: Most facts of a workspace.
    """

    def __init__(self, node: Node, *, max_entities: int = MAX_ENTITIES, max_facts: int = MAX_FACTS) -> None:
        self._node = node
        self._views = node.views
        self._read = FactReader(node.views)
        self._journal = node.journal
        self._clock = node.clock
        self._finder = EntityFinder(node)
        self._max_entities = max_entities
        self._max_facts = max_facts
        self._writing = asyncio.Lock()
        self._last_write = 0

    async def add(
        self, caller: Caller, request: ops.KgAddRequest, layered: LayeredFields | None = None
    ) -> ops.KgAddAnswer:
        """Record a fact, and the end of what it replaces; returns after the ack.

        Args:
            caller: Who asserts it.
            request: The fact.
            layered: Its fields of layered memory, where facts contradict each other and end nothing.

        Raises:
            InvalidRequest: If the end is before the start, or the workspace has as many facts or entities as it may.
        """
        _check(request.valid_from, request.valid_to, "valid_to")
        request = await self._storable(caller, request, "subject", "predicate", "object")
        replaces, layered = layered is None, layered or PLAIN
        async with self._one_write():
            workspace_id = caller.workspace_id
            rows = await self._read.open_facts(workspace_id, request.subject, request.predicate, request.object)
            known = [fact for fact in rows if fact.namespace == layered.namespace]
            if known:
                fact = known[0]
                info = "the fact is known and has no end; nothing was added"
                return ops.KgAddAnswer(triple_id=fact.fact_id, added=False, info=info, seq=fact.asserted_seq)
            subject, subject_known = await self._end_of(workspace_id, request.subject, request.subject_type)
            object_, object_known = await self._end_of(workspace_id, request.object, request.object_type)
            new = {
                end.entity_id for end, is_known in ((subject, subject_known), (object_, object_known)) if not is_known
            }
            await self._check_limits(workspace_id, len(new))
            fact_asserted = FactAsserted(
                fact_id="t_" + uuid7_hex(to_ms(self._clock())),
                subject=subject,
                predicate=request.predicate,
                object=object_,
                valid_from=request.valid_from,
                valid_to=request.valid_to,
                confidence=request.confidence,
                source_drawer_id=request.source_closet,
                source_entry_id=request.source_entry_id,
                namespace=layered.namespace,
                text=layered.text,
                fact_type=layered.fact_type,
                half_life_hours=layered.half_life_hours,
                single_valued=layered.single_valued,
            )
            named = f"{subject.name} {request.predicate} {object_.name}"
            ended = await self._end_replaced(caller, request, named) if replaces else ()
            seq = await self._record(caller, fact_asserted, named)
        info = f"the fact was added, and {len(ended)} ended" if ended else "the fact was added"
        return ops.KgAddAnswer(triple_id=fact_asserted.fact_id, added=True, info=info, seq=seq, ended_ids=ended)

    async def _end_replaced(self, caller: Caller, request: ops.KgAddRequest, named: str) -> tuple[str, ...]:
        """End the facts with another object that a new fact replaces, as far as the caller may; returns their ids."""
        if not declared_single(request.predicate) or request.valid_to is not None:
            return ()
        ended = self._clock().date().isoformat() if request.valid_from is None else before(request.valid_from)
        last_ms = span_of(ended).last_ms
        others = await self._read.open_others(caller.workspace_id, request.subject, request.predicate, request.object)
        facts = tuple(
            fact.fact_id
            for fact in others
            if not fact.namespace
            and (fact.from_ms is None or fact.from_ms <= last_ms)
            and may_change(caller, _author(fact), shared=True)
        )
        if facts:
            fact_ended = FactEnded(fact_ids=facts, ended=ended, reason=f"replaced: {named}"[:MAX_REASON])
            await self._record(caller, fact_ended, f"replaced: {named}")
        return facts

    async def invalidate(self, caller: Caller, request: ops.KgInvalidateRequest) -> ops.KgInvalidateAnswer:
        """Record that a fact ended; returns after the ack.

        Raises:
            NotAllowed: If an OWNER or ADMIN asserted it and the caller is neither.
            InvalidRequest: If the end is before the start.
        """
        ended = request.ended or self._clock().date().isoformat()
        async with self._one_write():
            rows = await self._read.open_facts(caller.workspace_id, request.subject, request.predicate, request.object)
            named = f"{request.subject} {request.predicate} {request.object}"
            if not rows:
                info = f"nothing changed: no fact {named!r} without an end"
                return ops.KgInvalidateAnswer(ended_ids=(), ended=ended, info=info, seq=None)
            for fact in rows:
                check_may_change(caller, _author(fact), f"the fact {fact.fact_id}", shared=True)
                _check(fact.valid_from, ended, "ended")
            ids = tuple(fact.fact_id for fact in rows)
            fact_ended = FactEnded(fact_ids=ids, ended=ended, reason=request.reason)
            seq = await self._record(caller, fact_ended, f"ended: {named}")
        info = f"ended on {ended}: {', '.join(ids)}"
        return ops.KgInvalidateAnswer(ended_ids=ids, ended=ended, info=info, seq=seq)

    async def name(self, caller: Caller, request: ops.KgEntityRequest) -> ops.KgEntityAnswer:
        """Record an entity's name, type and aliases; returns once they can be read.

        Raises:
            InvalidRequest: If an alias is the entity itself, means another entity, or has aliases.
        """
        request = await self._storable(caller, request, "entity")
        async with self._one_write():
            workspace_id = caller.workspace_id
            known = await self._read.entity(workspace_id, request.entity)
            root = entity_id(request.entity) if known is None else known.entity_id
            same = known is None or known.entity_id == entity_id(request.entity)
            fact_entity = FactEntity(
                entity_id=root,
                name=request.entity if same or known is None else known.name,
                type=request.type or (known.type if known else GENERAL_TYPE),
            )
            entity_named = EntityNamed(
                entity=fact_entity,
                aliases=tuple([await self._alias(workspace_id, root, name) for name in request.aliases]),
                dropped_aliases=tuple(
                    [await self._former_alias(workspace_id, root, name) for name in request.dropped_aliases]
                ),
            )
            await self._check_limits(workspace_id, int(known is None), facts=0)
            seq = await self._record(caller, entity_named, f"entity {fact_entity.name} is named")
        visible = await self._node.shows(seq, FACTS_PROJECTION)
        aliases = await self._read.aliases(workspace_id, root)
        return ops.KgEntityAnswer(
            entity_id=root,
            name=fact_entity.name,
            type=fact_entity.type,
            aliases=tuple(row.name for row in aliases),
            seq=seq,
            visible=visible,
        )

    async def query(self, caller: Caller, request: ops.KgQueryRequest) -> ops.KgQueryAnswer:
        """The facts about an entity, found by its name, else by an alias, else by meaning."""
        view_seq, workspace_id = self._read.view_seq, caller.workspace_id
        entity = await self._read.entity(workspace_id, request.entity)
        found_by: ops.FoundBy = "name" if _is_named(entity, request.entity) else "alias"
        similarity: float | None = None
        if entity is None:
            meant = await self._finder.find(workspace_id, request.entity)
            if meant is not None:
                entity = await self._read.of_id(workspace_id, meant.entity_id)
                found_by, similarity = "meaning", round(meant.cosine, 4)
        facts = [] if entity is None else await self._read.facts(
            workspace_id,
            limit=ops.FACTS_SHOWN + 1,
            order=LATEST_FIRST,
            about=entity.entity_id,
            direction=request.direction,
            span=span_of(request.as_of) if request.as_of else None,
        )  # fmt: skip
        own = set()
        if entity is not None:
            aliases = await self._read.aliases(workspace_id, entity.entity_id)
            own = {entity.entity_id, *(row.entity_id for row in aliases)}
        results = tuple(
            ops.EntityFact(**fact_fields(*fact), direction="outgoing" if fact[0].subject_id in own else "incoming")
            for fact in facts[: ops.FACTS_SHOWN]
        )
        return ops.KgQueryAnswer(
            entity=entity.name if entity else request.entity,
            found_by=found_by if entity else None,
            similarity=similarity if entity else None,
            results=results,
            count=len(results),
            truncated=len(facts) > ops.FACTS_SHOWN,
            view_seq=view_seq,
        )

    async def timeline(self, caller: Caller, request: ops.KgTimelineRequest) -> ops.KgTimelineAnswer:
        """Facts by their start."""
        view_seq, workspace_id = self._read.view_seq, caller.workspace_id
        about = None
        if request.entity is not None:
            entity = await self._read.entity(workspace_id, request.entity)
            about = entity.entity_id if entity else entity_id(request.entity)
        hits = await self._read.facts(workspace_id, limit=ops.TIMELINE_SHOWN + 1, order=BY_START, about=about)
        events = tuple(ops.Fact(**fact_fields(*hit)) for hit in hits[: ops.TIMELINE_SHOWN])
        return ops.KgTimelineAnswer(
            events=events, count=len(events), truncated=len(hits) > ops.TIMELINE_SHOWN, view_seq=view_seq
        )

    async def stats(self, caller: Caller, _request: ops.KgStatsRequest) -> ops.KgStatsAnswer:
        """Counts of entities and facts."""
        view_seq = self._read.view_seq
        entities, triples, current, predicates = await self._read.counts(caller.workspace_id)
        return ops.KgStatsAnswer(
            entities=entities,
            triples=triples,
            current_facts=current,
            expired_facts=triples - current,
            relationship_types=predicates,
            view_seq=view_seq,
        )

    @asynccontextmanager
    async def _one_write(self) -> AsyncIterator[None]:
        async with self._writing:
            await self._views.wait_for(self._last_write, self._node.wait_s, FACTS_PROJECTION)
            yield

    async def _storable(self, caller: Caller, request: Q, *fields: str) -> Q:
        """A request whose names may be stored: ids are made of them."""
        names = {name: await self._name(caller, request, name) for name in fields}
        return request.model_copy(update=names)

    async def _name(self, caller: Caller, request: Request, field: str) -> str:
        return await storable(self._journal, caller.workspace_id, getattr(request, field), field, MAX_NAME)

    async def _end_of(self, workspace_id: str, name: str, type_: str | None) -> tuple[FactEntity, bool]:
        """One end of a fact, and whether the entity is known; an alias is recorded as the entity that it means."""
        known = await self._read.entity(workspace_id, name)
        if known is None:
            return FactEntity(entity_id=entity_id(name), name=name, type=type_ or GENERAL_TYPE), False
        return FactEntity(entity_id=known.entity_id, name=known.name, type=type_ or GENERAL_TYPE), True

    async def _alias(self, workspace_id: str, root: str, name: str) -> FactEntity:
        name = await storable(self._journal, workspace_id, name, "aliases", MAX_NAME)
        known = await self._read.row(workspace_id, name)
        named = entity_id(name)
        if named == root:
            raise _refused("aliases", f"{name} is the entity itself", "leave it out")
        if known is not None and known.alias_of not in (None, root):
            raise _refused("aliases", f"{name} means another entity", "drop it there with dropped_aliases first")
        if await self._read.aliases(workspace_id, named):
            raise _refused("aliases", f"{name} has aliases itself", "drop them with dropped_aliases first")
        return FactEntity(entity_id=named, name=name, type=known.type if known else GENERAL_TYPE)

    async def _former_alias(self, workspace_id: str, root: str, name: str) -> FactEntity:
        known = await self._read.row(workspace_id, name)
        if known is None or known.alias_of != root:
            raise _refused("dropped_aliases", f"{name} is not an alias of the entity", "leave it out")
        return FactEntity(entity_id=known.entity_id, name=known.name, type=known.type)

    async def _check_limits(self, workspace_id: str, entities: int, facts: int = 1) -> None:
        known, triples, _, _ = await self._read.counts(workspace_id)
        if triples + facts > self._max_facts:
            raise InvalidQuery(f"the workspace has {triples} facts, the limit", hint="no fact can be added to it")
        if entities and known + entities > self._max_entities:
            raise InvalidQuery(
                f"the workspace has {known} entities, the limit is {self._max_entities}", hint="name known entities"
            )

    async def _record(self, caller: Caller, payload: ControlPayload, summary: str) -> int:
        decided = await self._node.decide(caller, payload, summary, **caller.author_fields)
        self._last_write = max(self._last_write, decided.seq)
        return decided.seq


def _refused(field: str, problem: str, fix: str) -> InvalidRequest:
    return InvalidRequest((FieldProblem(field, problem, fix),))


def _check(valid_from: str | None, valid_to: str | None, field: str) -> None:
    try:
        check_interval(valid_from, valid_to)
    except ValueError as error:
        raise _refused(field, str(error), "give an end at or after the start") from None


def _author(fact: FactRow) -> Author:
    return Author(fact.asserted_by_type, fact.asserted_by)


def _is_named(entity: EntityRow | None, name: str) -> bool:
    return entity is not None and entity.entity_id == entity_id(name)


def fact_fields(fact: FactRow, subject: str, object_: str) -> dict[str, Any]:
    """The fields of a ``Fact``."""
    return {
        "id": fact.fact_id,
        "subject": subject,
        "predicate": fact.predicate,
        "object": object_,
        "valid_from": fact.valid_from,
        "valid_to": fact.valid_to,
        "current": fact.valid_to is None,
        "confidence": fact.confidence,
        "source_closet": fact.source_drawer_id,
        "source_entry_id": fact.source_entry_id,
        "asserted_by": fact.asserted_by,
        "asserted_at": format_ms(fact.asserted_ms),
        "asserted_seq": fact.asserted_seq,
        "ended_by": fact.ended_by,
        "end_reason": fact.end_reason,
    }


ANSWERS: Final[Answers] = (
    (ops.KG_ADD, KnowledgeGraph.add),
    (ops.KG_QUERY, KnowledgeGraph.query),
    (ops.KG_INVALIDATE, KnowledgeGraph.invalidate),
    (ops.KG_TIMELINE, KnowledgeGraph.timeline),
    (ops.KG_STATS, KnowledgeGraph.stats),
    (ops.KG_ENTITY, KnowledgeGraph.name),
)
