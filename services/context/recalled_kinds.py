"""What recall finds beside entries: memory documents, drawers and facts, each by its family's own search.

Invariant: who may read what is decided by the functions that the family's own operations use, inside the search. Texts that
the scanners block are in no hit, except those that an operator reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ...schemas.core.principal import Role
from ...schemas.core.table import Table
from ...schemas.core.texts import TextKind
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import SNIPPET_CHARS
from ...schemas.documents.rules import Scope, scope_of
from ...schemas.documents.tables import CHUNK_TEXTS, DOCUMENTS_PROJECTION
from ...schemas.facts.tables import FACT_TEXTS, FACTS_PROJECTION
from ...schemas.palace.tables import DRAWER_TEXTS, DRAWERS_PROJECTION
from ...schemas.recall.operations import (
    RECALLED_KINDS,
    FoundAsFact,
    FoundAsText,
    FoundInDocument,
    FoundInDrawer,
    RecallKind,
)
from ...schemas.standing.operations import Standing, State
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.injection import finding_in
from ..desk import Caller
from ..documents.addressing import SearchedOwners, file_scope, memory_scope
from ..documents.search import DocumentIndex, DocumentSearch
from ..facts.index import KnownFact
from ..index.cache import Indexes
from ..index.scoped import ScopedTexts
from ..index.shelf import KindShelf, Shelf, TextSlot
from ..index.vectors import Vectors
from ..node import Node
from ..palace.drawer_index import shown_text
from ..palace.searching import DrawerQuery, DrawerSearch, RankedDrawer, rank_drawers
from ..recall.asking import Query
from ..recall.finding import find
from ..recall.kinds import NOTHING_FOUND, FoundText, FoundTexts, OtherKinds, TextQuery, query_weights, snippet_of
from ..recall.recipes import DOCUMENTS
from .state import LayeredState

Cut = Callable[[str], tuple[str, str]]


def other_kinds(node: Node) -> OtherKinds:
    """The kinds of memory that recall searches beside entries."""
    declared = (KindTexts(node, kind) for kind in RECALLED_KINDS)
    return OtherKinds(node.views, (DocumentTexts(node), DrawerTexts(node), FactTexts(node), *declared))


def _cut(text: str, weights: Mapping[int, float], analyzer: Analyzer, *, by_line: bool) -> tuple[str, str]:
    """The part of a text that is shown, and what is compared with other texts: the line of it that says most."""
    shown = snippet_of(text, weights, analyzer, SNIPPET_CHARS)
    if not by_line:
        return shown, text
    lines = [line for line in text.split("\n") if line.strip()] or [text]
    worth = [sum(weights.get(term, 0.0) for term in set(analyzer.terms(line))) for line in lines]
    best = lines[max(range(len(lines)), key=lambda at: (worth[at], not lines[at].startswith("#"), -at))]
    return shown, best.strip().lstrip("-*# ")


def _held(
    shelf: Shelf, scoped: ScopedTexts, slots: Sequence[int], query: Query
) -> tuple[list[frozenset[int]], Counter[int]]:
    """Of each text the query's terms that it holds; and of each term, how many texts in scope hold it."""
    stands_for = {term: term for term in query.terms} | dict(query.wording.forms)
    held: list[set[int]] = [set() for _ in slots]
    frequencies: Counter[int] = Counter()
    wanted = np.array(slots, np.int32)
    for term, postings in zip(stands_for, shelf.postings.of(list(stands_for)) if stands_for else (), strict=True):
        for docs in (postings.once, postings.often):
            if not len(docs):
                continue
            frequencies[stands_for[term]] += len(docs) if scoped.mask is None else int(scoped.mask[docs].sum())
            matches = docs.take(docs.searchsorted(wanted), mode="clip") == wanted
            for at in matches.nonzero()[0].tolist():
                held[at].add(stands_for[term])
    return [frozenset(terms) for terms in held], frequencies


def _vector(shelf: Shelf, slot: int, query: TextQuery) -> Vectors | None:
    """The vector of a text if it can be compared with the query's."""
    vector = None if query.vector(shelf.model) is None else shelf.vector_of(slot)
    return None if vector is None else vector[0]


class DocumentTexts:
    """Chunks of memory documents."""

    kind: RecallKind = "documents"
    table: Table[Any] = CHUNK_TEXTS
    view = DOCUMENTS_PROJECTION

    def __init__(self, node: Node) -> None:
        self._documents = node.use(DocumentSearch)
        self._analyzer = node.analyzer

    async def find(self, query: TextQuery) -> FoundTexts:
        """Chunks of the documents that the caller may read; none if the agent's memory is off."""
        scope = document_owners(query)
        agent = query.principal.agent_id or query.scope.agent_id
        if await self._documents.off(query.workspace_id, agent):
            return NOTHING_FOUND
        index = await self._documents.index(query.workspace_id, query.min_seq)
        scoped = index.scoped(scope.owners)
        words = query.query.with_vector(query.vector(index.model))
        slots = [hit.slot for hit in find(index, scoped, words, DOCUMENTS, query.limit, least=query.least).hits]
        held, frequencies = _held(index, scoped, slots, query.query)
        cut = partial(_cut, weights=query_weights(query.query), analyzer=self._analyzer, by_line=True)
        texts = [_of_chunk(index, slot, terms, cut, query) for slot, terms in zip(slots, held, strict=True)]
        return FoundTexts(texts, frequencies, scoped.size, index.seq)


def document_owners(query: TextQuery) -> SearchedOwners:
    """Whose documents are searched: for an AGENT that names no scope its own, its crew's and the workspace's."""
    principal, scope = query.principal, query.scope
    if principal.role is Role.AGENT and not query.own:
        return file_scope(principal, "both", None, None)
    return memory_scope(principal, scope.kind.value, scope.agent_id, scope.crew_id)[0]


def _of_chunk(index: DocumentIndex, slot: int, held: frozenset[int], cut: Cut, query: TextQuery) -> FoundText:
    owner, text, label = index.owner_of(slot), index.text_of(slot), index.name_of(slot)
    scope, name = scope_of(owner)
    identity = f"{owner}/{label}:{text.first_line}"
    return FoundText(
        "document",
        identity,
        text.text,
        held,
        _vector(index, slot, query),
        int(index.ts_ms[slot]),
        {
            "entry_id": identity,
            "entry_type": "document",
            "agent_id": name if scope is Scope.AGENT else None,
            "crew_id": name if scope is Scope.CREW else None,
            "actor_type": scope.value,
            "actor_id": name,
            "seq": 0,
            "document": FoundInDocument(owner=owner, file=label, heading=text.label, line=text.first_line),
        },
        cut,
    )


class DrawerTexts:
    """Drawers of the palace, which all agents of a workspace share."""

    kind: RecallKind = "drawers"
    table: Table[Any] = DRAWER_TEXTS
    view = DRAWERS_PROJECTION

    def __init__(self, node: Node) -> None:
        self._drawers = node.use(DrawerSearch)
        self._analyzer = node.analyzer

    async def find(self, query: TextQuery) -> FoundTexts:
        """The drawers of the workspace; with ``own``, those that the agent filed."""
        index = await self._drawers.index(query.workspace_id, query.min_seq)
        words = query.query.with_vector(query.vector(index.model))
        filed_by = query.scope.agent_id if query.own else None
        wanted = DrawerQuery(words, query.limit, now_ms=query.now_ms, filed_by=filed_by, least=query.least)
        hits = rank_drawers(index, wanted)
        scoped = index.scoped()
        held, frequencies = _held(index, scoped, [hit.slot for hit in hits], query.query)
        cut = partial(_cut, weights=query_weights(query.query), analyzer=self._analyzer, by_line=False)
        caller = Caller(query.principal, query.workspace_id, query.workspace_id)
        texts = [
            _of_drawer(hit, terms, _vector(index, hit.slot, query), cut)
            for hit, terms in zip(hits, held, strict=True)
            if caller.administers or shown_text(caller, hit.drawer.drawer_id, hit.content).finding is None
        ]
        return FoundTexts(texts, frequencies, scoped.size, index.seq)


def _of_drawer(hit: RankedDrawer, held: frozenset[int], vector: Vectors | None, cut: Cut) -> FoundText:
    drawer = hit.drawer
    return FoundText(
        "drawer",
        drawer.drawer_id,
        hit.content,
        held,
        vector,
        drawer.filed_ms,
        {
            "entry_id": drawer.entry_id,
            "entry_type": "drawer.filed",
            "agent_id": drawer.added_by_agent or None,
            "crew_id": None,
            "actor_type": drawer.author_type or "agent",
            "actor_id": drawer.author_name or None,
            "seq": 0,
            "drawer": FoundInDrawer(drawer_id=drawer.drawer_id, wing=drawer.wing, room=drawer.room),
        },
        cut,
    )


_REPLACED: Final = "replaced: "
"""Begin of the reason for which a fact ended that another one replaced."""


class FactTexts:
    """Facts of the knowledge graph, which all agents of a workspace share."""

    kind: RecallKind = "facts"
    table: Table[Any] = FACT_TEXTS
    view = FACTS_PROJECTION

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._indexes = node.use(LayeredState).indexes

    async def find(self, query: TextQuery) -> FoundTexts:
        """Facts that hold at the time of the query; with ``ended`` also others, marked; with ``own``, the agent's."""
        index = await self._indexes.get(query.workspace_id, self._views.view_seq(FACTS_PROJECTION))
        hits = index.found(
            query.query.text,
            query.embedded,
            None,
            query.at_ms,
            query.limit,
            ended=query.ended,
            asserted_by=query.scope.agent_id if query.own else None,
            least=query.least,
        )
        scoped = index.scoped()
        held, frequencies = _held(index, scoped, [hit.slot for hit in hits], query.query)
        texts = [
            _of_fact(index.at(hit.slot), terms, _vector(index, hit.slot, query), query)
            for hit, terms in zip(hits, held, strict=True)
        ]
        return FoundTexts(texts, frequencies, scoped.size, index.seq)


def _of_fact(fact: KnownFact, held: frozenset[int], vector: Vectors | None, query: TextQuery) -> FoundText:
    row = fact.row
    agent = row.asserted_by if row.asserted_by_type == "agent" else None
    standing = None
    if row.to_ms is not None and not fact.holds(query.now_ms) and (row.from_ms is None or row.from_ms <= query.now_ms):
        replaced = row.end_reason.startswith(_REPLACED)
        standing = Standing(
            state=State.SUPERSEDED if replaced else State.STALE,
            by=None if replaced else row.ended_by,
            at=format_ms(row.to_ms),
            reason=row.end_reason,
        )
    return FoundText(
        "fact",
        row.fact_id,
        fact.text,
        held,
        vector,
        row.asserted_ms,
        {
            "entry_id": row.entry_id,
            "entry_type": "fact.asserted",
            "agent_id": agent,
            "crew_id": None,
            "actor_type": row.asserted_by_type,
            "actor_id": row.asserted_by,
            "seq": row.asserted_seq,
            "fact": FoundAsFact(
                fact_id=row.fact_id,
                subject=fact.subject,
                predicate=row.predicate,
                object=fact.object,
                valid_from=row.valid_from,
                valid_to=row.valid_to,
            ),
        },
        lambda text: (text, text),
        standing=standing,
        last=not fact.holds(query.at_ms),
        sources=frozenset(filter(None, (row.source_drawer_id, row.source_entry_id))),
    )


class KindTexts:
    """Texts of a kind that is only declared, in the memories that the caller may read.

    Args:
        node: The node.
        kind: The kind.
    """

    def __init__(self, node: Node, kind: TextKind) -> None:
        self.kind: RecallKind = str(kind.recalled)
        self.table: Table[Any] = kind.table
        self.view = kind.table.view
        self._name = kind.name
        self._analyzer = node.analyzer
        self._indexes = Indexes(
            node.recall.cache, kind.name, partial(TextSlot[KindShelf], make=partial(KindShelf, kind))
        )

    async def find(self, query: TextQuery) -> FoundTexts:
        """The texts in the memories in which documents are searched."""
        index = await self._indexes.get(query.workspace_id, query.min_seq)
        scoped = index.scoped(document_owners(query).owners)
        words = query.query.with_vector(query.vector(index.model))
        slots = [hit.slot for hit in find(index, scoped, words, DOCUMENTS, query.limit, least=query.least).hits]
        held, frequencies = _held(index, scoped, slots, query.query)
        cut = partial(_cut, weights=query_weights(query.query), analyzer=self._analyzer, by_line=True)
        texts = [
            self._found(index, slot, terms, cut, query)
            for slot, terms in zip(slots, held, strict=True)
            if query.principal.role.administers or finding_in(index.text_of(slot).text) is None
        ]
        return FoundTexts(texts, frequencies, scoped.size, index.seq)

    def _found(self, index: KindShelf, slot: int, held: frozenset[int], cut: Cut, query: TextQuery) -> FoundText:
        owner, text, row = index.owner_of(slot), index.text_of(slot), index.items[index.key_of(slot)]
        scope, name = scope_of(owner)
        return FoundText(
            self._name,
            f"{row.item}:{text.first_line}",
            text.text,
            held,
            _vector(index, slot, query),
            row.ts_ms,
            {
                "entry_id": row.source_id,
                "entry_type": self._name,
                "agent_id": name if scope is Scope.AGENT else None,
                "crew_id": name if scope is Scope.CREW else None,
                "actor_type": scope.value,
                "actor_id": name,
                "seq": row.since_seq,
                "text": FoundAsText(item=row.item, owner=owner, place=row.place, label=text.label),
            },
            cut,
            sources=frozenset((row.source_id,)),
        )
