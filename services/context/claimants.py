"""Reads statements of every kind (entries, drawers, facts, rules, lessons) and finds what makes the same claim as one.

Invariant: only what the caller may read is found. Whether two texts make the same claim is decided by
``schemas/relations/judging`` alone; the searches here give it candidates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ...schemas.catalogue import info_of
from ...schemas.core.entry import ActorType, Priority
from ...schemas.core.errors import FieldProblem, InvalidRequest, NotAllowed, NotFound
from ...schemas.core.grants import USER, speaks_for
from ...schemas.core.ids import is_id
from ...schemas.core.payload import PublisherKind
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import to_ms
from ...schemas.documents.rules import TIERS, Scope, owner_of, scope_of
from ...schemas.documents.tables import DOCUMENTS, VERSIONS, DocumentRow
from ...schemas.entries.tables import ENTRIES
from ...schemas.facts.events import FactAsserted
from ...schemas.learning.events import LessonRecorded, RuleLearned
from ...schemas.learning.lessons import MISSION_OUTCOME
from ...schemas.learning.tables import LESSONS, RULES, LessonRow, RuleRow
from ...schemas.palace.events import DrawerFiled
from ...schemas.palace.tables import DRAWERS, LIVE_DRAWER
from ...schemas.relations.judging import NEAR_CLAIM, Sameness, corrected_within, same_claim, telling_words
from ...schemas.standing.operations import State, StatementKind
from ...schemas.standing.tables import RETRACTIONS
from ..desk import Author, Caller, check_may_change
from ..documents.addressing import DocumentAddress, file_scope
from ..documents.search import DocumentSearch
from ..entries.filters import Visible
from ..entries.rows import StoredEntry
from ..facts.index import KnownFact
from ..node import Node
from ..palace.drawer_index import Drawer, DrawerReader
from ..palace.searching import DrawerSearch
from .layered_facts import LayeredFacts

MOST_FOUND: Final = 200
"""Candidates of each search; a claim that more texts repeat is corrected again until none is left."""
_OF_CONTROL: Final = {
    DrawerFiled.ENTRY_TYPE: "drawer_id",
    FactAsserted.ENTRY_TYPE: "fact_id",
    RuleLearned.ENTRY_TYPE: "",
    LessonRecorded.ENTRY_TYPE: "",
}
"""Control entries that state something, each with the field of its own id."""
_RETRACTED: Final = f"""EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = r.workspace_id AND x.kind = 'entry'
    AND x.target_id = {{}} AND x.{PRESENT})"""
_TEXT: Final = "CASE WHEN json_type(payload, '$.text') = 'VARCHAR' THEN payload->>'$.text' ELSE summary END"
_SAYING: Final = f"""SELECT id, {_TEXT} FROM {ENTRIES} WHERE NOT control AND {{visible}}
    AND (list_contains(?::VARCHAR[], id) OR list_aggregate([contains(lower({_TEXT}), w) FOR w IN ?::VARCHAR[]], 'bool_and'))
    ORDER BY seq DESC LIMIT {MOST_FOUND}"""
_DRAWERS: Final = f"""SELECT drawer_id FROM {DRAWERS} WHERE workspace_id = $ws AND {LIVE_DRAWER}
    AND (list_contains($entries, entry_id)
        OR list_aggregate([contains(lower(content), w) FOR w IN $words], 'bool_and')) LIMIT {MOST_FOUND}"""
_FILED_FROM: Final = f"""SELECT id, refs FROM {ENTRIES} WHERE control AND workspace_id = ?
    AND entry_type = '{DrawerFiled.ENTRY_TYPE}' AND contains(refs::VARCHAR, ?)"""
_RULES: Final = (
    f"""SELECT {RULES.names} FROM {RULES} r WHERE workspace_id = $ws AND NOT {_RETRACTED.format("r.rule_id")}"""
)
_RULE: Final = (
    f"SELECT {RULES.names}, {_RETRACTED.format('r.rule_id')} FROM {RULES} r WHERE workspace_id = ? AND rule_id = ?"
)
_LESSONS: Final = f"""SELECT {LESSONS.names} FROM {LESSONS} r
    WHERE workspace_id = $ws AND source <> '{MISSION_OUTCOME}' AND NOT {_RETRACTED.format("r.entry_id")}
    QUALIFY row_number() OVER (PARTITION BY owner, lesson_id ORDER BY seq DESC) = 1"""
_LESSON: Final = f"SELECT {LESSONS.names} FROM {LESSONS} WHERE workspace_id = ? AND entry_id = ?"
_DOCUMENTS: Final = f"""SELECT * FROM (SELECT {DOCUMENTS.names}, EXISTS (SELECT 1 FROM {VERSIONS} v
            WHERE v.workspace_id = d.workspace_id AND v.owner = d.owner AND v.tier = d.tier
            AND v.doc_key IS NOT DISTINCT FROM d.doc_key AND v.seq >= d.base_seq
            AND list_aggregate([contains(v.derived_from, id) FOR id IN $ids], 'bool_or')) AS derived
        FROM {DOCUMENTS} d WHERE workspace_id = $ws AND NOT retracted
        AND ($owners IS NULL OR list_contains($owners, owner)) AND (finding IS NULL OR $whole))
    WHERE derived OR list_aggregate([contains(lower(content), w) FOR w IN $words], 'bool_and')
    ORDER BY owner, tier, doc_key LIMIT {MOST_FOUND}"""


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement.

    Attributes:
        kind: Its kind.
        id: Of an entry, a drawer or a fact; of a rule or a lesson, its entry's.
        text: What it says.
        row: The entry, drawer, fact, rule or lesson itself.
        counts: Whether it is current.
        by: What it gives way to, if that is known.
    """

    kind: StatementKind
    id: str
    text: str
    row: Any
    counts: bool = True
    by: str | None = None

    @property
    def event_kind(self) -> str:
        """The kind under which a correction names it: rules and lessons are entries."""
        return self.kind if self.kind in ("drawer", "fact") else "entry"

    def check_may_correct(self, caller: Caller) -> None:
        """Refuse a correction by a caller who may not change the statement.

        Raises:
            NotAllowed: If the caller may not.
        """
        row, named = self.row, f"{self.kind} {self.id}"
        if caller.administers:
            return
        if self.kind in ("rule", "lesson"):
            raise NotAllowed(
                f"{named} is given to other agents",
                hint="ask an OWNER or ADMIN; a LEAD may retract it",
                field="id",
            )
        if self.kind == "drawer":
            check_may_change(caller, row.author, named)
        elif self.kind == "fact":
            check_may_change(caller, Author(row.row.asserted_by_type, row.row.asserted_by), named, shared=True)
        else:
            _check_entry(caller, row, named)


def _check_entry(caller: Caller, entry: StoredEntry, named: str) -> None:
    record = entry.record
    kind, name = record["actor_type"], record["actor_id"]
    if info_of(record["entry_type"]).publisher is not PublisherKind.AGENTS:
        raise NotAllowed(f"{named} is a decision about agents", hint="ask an OWNER or ADMIN", field="id")
    if record["live_priority"] != Priority.NORMAL:
        raise NotAllowed(
            f"{named} has the priority {record['live_priority']}, which an OWNER or ADMIN gave it",
            hint="ask an OWNER or ADMIN to correct it",
            field="id",
        )
    if kind == ActorType.USER:
        if not speaks_for(caller.principal.speaks_for, USER, name or ""):
            raise NotAllowed(
                f"{named} was said by {name or 'a person'}",
                hint="use a token that may speak for that person, or ask an OWNER or ADMIN",
                field="id",
            )
        return
    check_may_change(caller, Author(kind, name, record["agent_id"], record["crew_id"]), named)


def _name_of(entry: StoredEntry) -> str:
    """The id under which a statement is known: the own id of a drawer or a fact that an entry records, else the entry's."""
    field = _OF_CONTROL.get(entry.record["entry_type"])
    name = orjson.loads(orjson.dumps(entry.record["payload"])).get(field) if field else None
    return name if isinstance(name, str) else entry.id


@dataclass(frozen=True, slots=True)
class Repeated:
    """A statement that makes the same claim, or was derived from the corrected one.

    Attributes:
        same: How surely it makes the same claim.
        derived: Whether it was taken from what is retired.
    """

    stated: Stated
    same: Sameness
    derived: bool = False


class Claimants:
    """Reads and finds statements."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._drawers = DrawerReader(node.views)

    async def of_id(self, caller: Caller, statement_id: str) -> Stated:
        """The statement with an id: of an entry, a drawer, a fact, a rule, a lesson, or of the entry that recorded it.

        Raises:
            NotFound: If there is none, or the caller may not read it.
            InvalidRequest: If it is a line of a document, or an entry that states nothing.
        """
        if "/" in statement_id and ":" in statement_id:
            fix = "correct the memory that it repeats with documents=true, or write the document"
            raise InvalidRequest((FieldProblem("id", "is a line of a document", fix),))
        if (drawer := await self._drawers.latest(caller.workspace_id, statement_id)) is not None:
            return _drawer(drawer)
        if (fact := await self._fact(caller, statement_id)) is not None:
            return fact
        if is_id(statement_id):
            try:
                return await self._entry(caller, statement_id)
            except NotFound:
                pass
        raise NotFound(
            f"no statement {statement_id[:64]}",
            hint="take the id of an entry, drawer, fact, rule or lesson from recall or a list; pass min_seq for a new one",
            field="id",
        )

    async def of_ids(self, caller: Caller, ids: Sequence[str]) -> dict[str, Stated]:
        """Likewise for some ids in one query of each kind; without those for which ``of_id`` raises."""
        entries = await self._node.queries.of_ids(caller.principal, ids, caller.workspace_id)
        names = {one: one for one in ids} | {entry.id: _name_of(entry) for entry in entries}
        drawers = await self._drawers.latest_of(caller.workspace_id, list(dict.fromkeys(names.values())))
        found = {drawer.row.drawer_id: _drawer(drawer) for drawer in drawers}
        for name in names.values():
            if name not in found and (fact := await self._fact(caller, name)) is not None:
                found[name] = fact
        for entry in entries:
            if entry.id not in found and names[entry.id] == entry.id:
                with suppress(NotFound, InvalidRequest):
                    found[entry.id] = await self._stated(caller, entry)
        return {one: found[name] for one, name in names.items() if name in found}

    async def _entry(self, caller: Caller, entry_id: str) -> Stated:
        found = await self._node.queries.get(caller.principal, entry_id, workspace=caller.workspace_id)
        return await self._stated(caller, found.entry)

    async def _stated(self, caller: Caller, entry: StoredEntry) -> Stated:
        entry_id, entry_type = entry.id, entry.record["entry_type"]
        if (name := _name_of(entry)) != entry_id:
            return await self.of_id(caller, name)
        payload = orjson.loads(orjson.dumps(entry.record["payload"]))
        if entry_type in (RuleLearned.ENTRY_TYPE, LessonRecorded.ENTRY_TYPE):
            return await asyncio.to_thread(self._learned, caller.workspace_id, entry)
        if info_of(entry_type).publisher in (PublisherKind.SERVICE, PublisherKind.RESERVED):
            fix = "name an entry, drawer, fact, rule or lesson; make the opposite decision instead"
            raise InvalidRequest((FieldProblem("id", f"{entry_id} records a decision", fix),))
        standing = entry.record["standing"]
        gone = standing is not None and standing["state"] in (State.RETRACTED, State.STALE, State.SUPERSEDED)
        text = payload.get("text")
        summary = entry.record["summary"]
        return Stated(
            "entry",
            entry.id,
            text if isinstance(text, str) else summary,
            entry,
            not gone,
            standing["by"] if gone and standing["state"] == State.SUPERSEDED else None,
        )

    async def _fact(self, caller: Caller, fact_id: str) -> Stated | None:
        fact = (await self._node.use(LayeredFacts).index(caller.workspace_id)).get(fact_id)
        return None if fact is None else self._of_fact(fact)

    def _of_fact(self, fact: KnownFact) -> Stated:
        return Stated("fact", fact.row.fact_id, fact.text, fact, fact.holds(to_ms(self._node.clock())))

    def _learned(self, workspace_id: str, entry: StoredEntry) -> Stated:
        for *rule, retracted in self._views.rows(_RULE, [workspace_id, entry.id]):
            return _rule(RuleRow(*rule), counts=not retracted)
        for row in self._views.rows(_LESSON, [workspace_id, entry.id]):
            lesson = LessonRow(*row)
            return _lesson(lesson, counts=lesson in self._lessons(workspace_id))
        hint = "a rule that waits for a review is a proposal: `crew-journal proposal reject` rejects it"
        raise NotFound(f"{entry.id} is not among the rules and lessons", hint=hint, field="id")

    def _lessons(self, workspace_id: str) -> list[LessonRow]:
        return [LessonRow(*row) for row in self._views.rows(_LESSONS, {"ws": workspace_id})]

    async def repeating(self, caller: Caller, old: str, retired: Sequence[Stated]) -> list[Repeated]:
        """The current statements that make the claim of a text, or were derived from retired statements; not these."""
        entries = [*await self._like(caller, old), *await self._derived_drawers(caller, retired)]
        entries += await self._similar_facts(caller, old, retired)
        entries += await asyncio.to_thread(self._similar_learned, caller, old, retired)
        known = {(stated.event_kind, stated.id) for stated in retired}
        found: dict[tuple[str, str], Repeated] = {}
        for repeated in entries:
            key = repeated.stated.event_kind, repeated.stated.id
            if repeated.stated.counts and key not in known and (key not in found or repeated.derived):
                found[key] = repeated
        return list(found.values())

    async def _like(self, caller: Caller, old: str) -> list[Repeated]:
        """Entries and drawers that say what a text says."""
        near = await self._near_entries(caller.workspace_id, old)
        visible = Visible.to(caller.principal, caller.workspace_id).condition()
        params = [*visible.params, list(near), telling_words(old)]
        rows = await asyncio.to_thread(self._views.rows, _SAYING.format(visible=visible.sql), params)
        found = []
        for entry_id, text in rows:
            same = same_claim(text, old, cosine=near.get(entry_id))
            if same or corrected_within(text, old, old) is not None:
                found.append(Repeated(await self._entry(caller, entry_id), same))
        drawers = await self._node.use(DrawerSearch).alike(caller.workspace_id, old, NEAR_CLAIM, MOST_FOUND)
        cosines = {hit.drawer.drawer_id: hit.similarity for hit in drawers}
        params_ = {"ws": caller.workspace_id, "entries": [], "words": telling_words(old)}
        verbatim = [row[0] for row in await asyncio.to_thread(self._views.rows, _DRAWERS, params_)]
        for drawer_id in dict.fromkeys([*cosines, *verbatim]):
            drawer = await self._drawers.latest(caller.workspace_id, drawer_id)
            if drawer is not None and drawer.live:
                same = same_claim(drawer.row.content, old, cosine=cosines.get(drawer_id))
                found.append(Repeated(_drawer(drawer), same))
        return found

    async def _near_entries(self, workspace_id: str, text: str) -> dict[str, float]:
        """Entry → its cosine with a text, from ``NEAR_CLAIM``; of all agents, whatever the caller may read."""
        embedded = await self._node.recall.embed(workspace_id, text)
        index = await self._node.recall.indexes.get(workspace_id, 0)
        matrix = index.vectors
        if embedded is None or matrix is None or matrix.model != embedded.model or not len(matrix.doc):
            return {}
        cosines = matrix.vectors @ embedded.vector
        rows = (cosines >= NEAR_CLAIM).nonzero()[0]
        rows = rows[cosines[rows].argsort()[::-1][:MOST_FOUND]]
        pairs = [(int(matrix.doc[row]), float(cosines[row])) for row in rows.tolist()]
        return {index.documents.id_of(doc): cosine for doc, cosine in pairs if doc >= 0}

    async def _derived_drawers(self, caller: Caller, retired: Sequence[Stated]) -> list[Repeated]:
        """Drawers that were filed from retired entries."""
        filed: list[str] = []
        for stated in retired:
            if stated.event_kind == "entry":
                params = [caller.workspace_id, f'"{stated.id}"']
                filed += [row[0] for row in await asyncio.to_thread(self._views.rows, _FILED_FROM, params)]
        if not filed:
            return []
        params_ = {"ws": caller.workspace_id, "entries": filed, "words": ["\0"]}
        rows = await asyncio.to_thread(self._views.rows, _DRAWERS, params_)
        drawers = [await self._drawers.latest(caller.workspace_id, row[0]) for row in rows]
        return [Repeated(_drawer(drawer), Sameness.DIFFERENT, derived=True) for drawer in drawers if drawer is not None]

    async def _similar_facts(self, caller: Caller, old: str, retired: Sequence[Stated]) -> list[Repeated]:
        """Facts that say what a text says, and facts taken from retired entries and drawers."""
        layered = self._node.use(LayeredFacts)
        now_ms = to_ms(self._node.clock())
        found = await layered.candidates(caller.workspace_id, old, None, now_ms)
        repeated = [Repeated(self._of_fact(fact), same_claim(fact.text, old, cosine=near)) for fact, near in found]
        sources = {stated.id for stated in retired}
        taken = [
            Repeated(self._of_fact(fact), Sameness.DIFFERENT, derived=True)
            for fact in (await layered.index(caller.workspace_id)).all(None)
            if sources & {fact.row.source_drawer_id, fact.row.source_entry_id}
        ]
        return [*(one for one in repeated if one.same), *taken]

    def _similar_learned(self, caller: Caller, old: str, retired: Sequence[Stated]) -> list[Repeated]:
        """Rules and lessons that say what a text says, and rules that have a retired entry among their evidence."""
        named = {"ws": caller.workspace_id}
        gone = {stated.id for stated in retired if stated.event_kind == "entry"}
        found = []
        for row in (RuleRow(*row) for row in self._views.rows(_RULES, named)):
            same = same_claim(row.pattern, old)
            derived = not gone.isdisjoint(json.loads(row.evidence))
            if same or derived:
                found.append(Repeated(_rule(row), same, derived))
        lessons = ((lesson, same_claim(lesson.rule, old)) for lesson in self._lessons(caller.workspace_id))
        found += [Repeated(_lesson(lesson), same) for lesson, same in lessons if same]
        crew, agent = caller.principal.crew_id, caller.principal.agent_id
        own = {crew, owner_of(Scope.AGENT, agent)} | ({owner_of(Scope.CREW, crew)} if crew else set())
        return [one for one in found if caller.administers or one.derived or one.stated.row[1] in own]

    async def documents(self, caller: Caller, old: str, retired: Sequence[Stated]) -> list[tuple[DocumentRow, bool]]:
        """The documents that the caller may read and that have the words of a text, or were made from retired statements.

        Each with whether it was made from one of them.
        """
        principal = caller.principal
        if not caller.administers and await self._node.use(DocumentSearch).off(caller.workspace_id, principal.agent_id):
            return []
        owners = None if caller.administers else file_scope(principal, "both", None, None).owners
        params = {
            "ws": caller.workspace_id,
            "owners": None if owners is None else list(owners),
            "whole": caller.administers,
            "words": telling_words(old),
            "ids": [f'"{stated.id}"' for stated in retired],
        }
        rows = await asyncio.to_thread(self._views.rows, _DOCUMENTS, params)
        documents = [(DocumentRow(*row), derived) for *row, derived in rows]
        return [(document, derived) for document, derived in documents if document.tier in TIERS]


def address_of(row: DocumentRow) -> DocumentAddress:
    """The address of a document."""
    return DocumentAddress(row.workspace_id, scope_of(row.owner)[0], row.owner, row.tier, row.doc_key)


def _drawer(drawer: Drawer) -> Stated:
    row = drawer.row
    return Stated("drawer", row.drawer_id, row.content, drawer, drawer.live, row.superseded_by)


def _rule(row: RuleRow, *, counts: bool = True) -> Stated:
    return Stated("rule", row.rule_id, row.pattern, row, counts)


def _lesson(row: LessonRow, *, counts: bool = True) -> Stated:
    return Stated("lesson", row.entry_id, row.rule, row, counts)
