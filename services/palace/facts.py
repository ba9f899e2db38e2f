"""Reads the knowledge graph from the views, as of now or of a sequence.

Invariant: every query names its workspace; an alias and its entity are one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ...schemas.facts import Span, entity_id
from ...schemas.ids import name_key
from ...schemas.ports import ViewReader
from ...schemas.views import FACTS, FACTS_PROJECTION, KG_ENTITIES
from ...schemas.views.facts import EntityRow, FactRow
from ...schemas.views.table import PRESENT, as_of

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

    async def entity(self, workspace_id: str, name: str, seq: int | None = None) -> EntityRow | None:
        """The entity that a name or an alias means."""
        row = await self._entity(workspace_id, entity_id(name), seq)
        return row if row is None or row.alias_of is None else await self._entity(workspace_id, row.alias_of, seq)

    async def aliases(self, workspace_id: str, root_id: str, seq: int | None = None) -> list[EntityRow]:
        """The aliases of an entity, by name."""
        sql = f"SELECT {KG_ENTITIES.names} FROM {KG_ENTITIES} WHERE workspace_id = ? AND alias_of = ? AND {_when(seq)}"
        return sorted((EntityRow(*row) for row in await self._rows(sql, [workspace_id, root_id])), key=lambda r: r.name)

    async def row(self, workspace_id: str, name: str) -> EntityRow | None:
        """The entity of exactly this name, although it may be an alias."""
        return await self._entity(workspace_id, entity_id(name), None)

    async def of_id(self, workspace_id: str, wanted: str) -> EntityRow | None:
        """An entity by its id."""
        return await self._entity(workspace_id, wanted, None)

    async def facts(
        self,
        workspace_id: str,
        *,
        limit: int,
        order: str,
        about: str | None = None,
        direction: str = "both",
        span: Span | None = None,
        seq: int | None = None,
    ) -> list[Shown]:
        """Facts with the names of their ends.

        Args:
            workspace_id: The workspace.
            limit: Most facts.
            order: ``LATEST_FIRST`` or ``BY_START``.
            about: Id of an entity, not of an alias; facts about its aliases are facts about it.
            direction: In which the entity is subject (outgoing), object (incoming) or either.
            span: Only facts that held at some time in it.
            seq: The graph is read as it was at this sequence.
        """
        ends = {"outgoing": "s.root = $about", "incoming": "o.root = $about"}
        about_sql = _EVERY if about is None else ends.get(direction, "(s.root = $about OR o.root = $about)")
        given = {"ws": workspace_id, "about": about, "first": span and span.first_ms, "last": span and span.last_ms}
        used = {name: value for name, value in given.items() if name == "ws" or value is not None}
        names = ", ".join(f"f.{column.name}" for column in FACTS.columns)
        sql = f"""WITH known AS (SELECT * FROM {KG_ENTITIES} WHERE workspace_id = $ws AND {_when(seq)}),
            named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS name
                FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of)
            SELECT s.name, o.name, {names} FROM (FROM {FACTS} WHERE {_when(seq)}) f
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

    async def counts(self, workspace_id: str, seq: int | None = None) -> tuple[int, int, int, tuple[str, ...]]:
        """Numbers of entities, of facts and of those without an end; the predicates in order."""
        entities = f"SELECT count(*) FROM {KG_ENTITIES} WHERE workspace_id = ? AND alias_of IS NULL AND {_when(seq)}"
        facts = f"""SELECT count(*), count(*) FILTER (valid_to IS NULL), list_sort(list(DISTINCT predicate))
            FROM {FACTS} WHERE workspace_id = ? AND {_when(seq)}"""
        [(known,)] = await self._rows(entities, [workspace_id])
        [(triples, current, predicates)] = await self._rows(facts, [workspace_id])
        return known, triples, current, tuple(predicates or ())

    async def _entity(self, workspace_id: str, wanted: str, seq: int | None) -> EntityRow | None:
        sql = f"SELECT {KG_ENTITIES.names} FROM {KG_ENTITIES} WHERE key = ? AND workspace_id = ? AND {_when(seq)}"
        rows = await self._rows(sql, [name_key((workspace_id, wanted)), workspace_id])
        return EntityRow(*rows[0]) if rows else None

    async def _rows(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._views.rows, sql, params)


def _when(seq: int | None) -> str:
    return PRESENT if seq is None else f"({as_of(seq)})"
