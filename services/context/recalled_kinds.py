"""What recall finds beside entries: memory documents, drawers and facts, each by its family's own search.

Invariant: who may read what is decided by the functions that the family's own operations use, inside the search. Texts that
the scanners block are in no hit, except those that an operator reads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ...schemas.core.principal import Role
from ...schemas.core.table import Table
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import SNIPPET_CHARS
from ...schemas.documents.rules import Scope, scope_of
from ...schemas.documents.tables import CHUNKS, DOCUMENTS_PROJECTION
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION
from ...schemas.palace.tables import DRAWERS, DRAWERS_PROJECTION
from ...schemas.recall.operations import DocumentPlace, DrawerPlace, FactPlace, RecallKind
from ...schemas.standing.operations import Standing, State
from ...schemas.text.analyzer import Analyzer
from ..desk import Caller
from ..documents.chunk_search import (
    ChunkHit,
    SearchedOwners,
    file_scope,
    memory_scope,
    search_chunks,
    snippet_of,
)
from ..documents.search import DocumentSearch, chunk_id, owners_in
from ..facts.index import KnownFact
from ..index.texts import OwnerChunks
from ..node import Node
from ..palace.rows import shown_text
from ..palace.searching import DrawerQuery, DrawerSearch, RankedDrawer, rank_drawers
from ..recall.asking import Query
from ..recall.kinds import NOTHING_FOUND, FoundText, FoundTexts, OtherKinds, TextQuery, query_weights
from .state import LayeredState

Cut = Callable[[str], tuple[str, str]]


def other_kinds(node: Node) -> OtherKinds:
    """The kinds of memory that recall searches beside entries."""
    return OtherKinds(node.views, (DocumentTexts(node), DrawerTexts(node), FactTexts(node)))


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
    texts: Sequence[tuple[OwnerChunks, int]], owners: Sequence[OwnerChunks], query: Query
) -> tuple[list[frozenset[int]], Counter[int]]:
    """Of each text, given by owner and slot, the query's terms that it holds; texts of the owners that hold each."""
    stands_for = {term: term for term in query.terms} | dict(query.wording.forms)
    held: list[set[int]] = [set() for _ in texts]
    frequencies: Counter[int] = Counter()
    for owner in owners:
        mine = [(at, slot) for at, (of, slot) in enumerate(texts) if of is owner]
        slots = np.array([slot for _, slot in mine], np.int32)
        for term, postings in zip(stands_for, owner.postings.of(list(stands_for)) if stands_for else (), strict=True):
            for docs in (postings.once, postings.often):
                if not len(docs):
                    continue
                frequencies[stands_for[term]] += int(np.count_nonzero(owner.live[docs]))
                matches = docs.take(docs.searchsorted(slots), mode="clip") == slots
                for place in matches.nonzero()[0].tolist():
                    held[mine[place][0]].add(stands_for[term])
    return [frozenset(terms) for terms in held], frequencies


class DocumentTexts:
    """Chunks of memory documents."""

    kind: RecallKind = "documents"
    table: Table[Any] = CHUNKS
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
        index = await self._documents.cache.get(query.workspace_id, query.min_seq)
        owners = owners_in(index, scope)
        words = query.query.with_vector(query.vector(index.model))
        hits = search_chunks(owners, words, query.limit, model=index.model, least=query.least).hits
        held, frequencies = _held([(hit.owner, hit.slot) for hit in hits], owners, query.query)
        cut = partial(_cut, weights=query_weights(query.query), analyzer=self._analyzer, by_line=True)
        compared = words.vector is not None
        texts = [_of_chunk(hit, terms, cut, compared=compared) for hit, terms in zip(hits, held, strict=True)]
        size = sum(int(np.count_nonzero(owner.live)) for owner in owners)
        return FoundTexts(texts, frequencies, size, index.seq)


def document_owners(query: TextQuery) -> SearchedOwners:
    """Whose documents are searched: for an AGENT that names no scope its own, its crew's and the workspace's."""
    principal, scope = query.principal, query.scope
    if principal.role is Role.AGENT and not query.own:
        return file_scope(principal, "both", None, None)
    return memory_scope(principal, scope.kind.value, scope.agent_id, scope.crew_id)[0]


def _of_chunk(hit: ChunkHit, held: frozenset[int], cut: Cut, *, compared: bool) -> FoundText:
    owner, text = hit.owner.owner, hit.owner.text_of(hit.slot)
    document = hit.owner.document_of(hit.slot)
    scope, name = scope_of(owner)
    vector = hit.owner.vector_of(hit.slot) if compared else None
    identity = chunk_id(hit)
    return FoundText(
        "document",
        identity,
        text.text,
        held,
        None if vector is None else vector[0],
        document.updated_ms,
        {
            "entry_id": identity,
            "entry_type": "document",
            "agent_id": name if scope is Scope.AGENT else None,
            "crew_id": name if scope is Scope.CREW else None,
            "actor_type": scope.value,
            "actor_id": name,
            "seq": 0,
            "document": DocumentPlace(owner=owner, file=document.label, heading=text.breadcrumb, line=text.first_line),
        },
        cut,
    )


class DrawerTexts:
    """Drawers of the palace, which all agents of a workspace share."""

    kind: RecallKind = "drawers"
    table: Table[Any] = DRAWERS
    view = DRAWERS_PROJECTION

    def __init__(self, node: Node) -> None:
        self._drawers = node.use(DrawerSearch)
        self._analyzer = node.analyzer

    async def find(self, query: TextQuery) -> FoundTexts:
        """The drawers of the workspace; with ``own``, those that the agent filed."""
        index = await self._drawers.cache.get(query.workspace_id, query.min_seq)
        words = query.query.with_vector(query.vector(index.model))
        filed_by = query.scope.agent_id if query.own else None
        wanted = DrawerQuery(words, query.limit, now_ms=query.now_ms, filed_by=filed_by, least=query.least)
        hits = rank_drawers(index, wanted)
        placed = [(hit, slot) for hit in hits if (slot := index.slot_of(hit.drawer.drawer_id)) is not None]
        held, frequencies = _held([(index.texts, slot) for _, slot in placed], [index.texts], query.query)
        cut = partial(_cut, weights=query_weights(query.query), analyzer=self._analyzer, by_line=False)
        caller = Caller(query.principal, query.workspace_id, query.workspace_id)
        texts = []
        for (hit, slot), terms in zip(placed, held, strict=True):
            if caller.administers or shown_text(caller, hit.drawer.drawer_id, hit.content).finding is None:
                vector = None if words.vector is None else index.texts.vector_of(slot)
                texts.append(_of_drawer(hit, terms, None if vector is None else vector[0], cut))
        return FoundTexts(texts, frequencies, len(index.drawers), index.seq)


def _of_drawer(hit: RankedDrawer, held: frozenset[int], vector: np.ndarray | None, cut: Cut) -> FoundText:
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
            "drawer": DrawerPlace(drawer_id=drawer.drawer_id, wing=drawer.wing, room=drawer.room),
        },
        cut,
    )


_REPLACED: Final = "replaced: "
"""Begin of the reason for which a fact ended that another one replaced."""


class FactTexts:
    """Facts of the knowledge graph, which all agents of a workspace share."""

    kind: RecallKind = "facts"
    table: Table[Any] = FACTS
    view = FACTS_PROJECTION

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._indexes = node.use(LayeredState).indexes

    async def find(self, query: TextQuery) -> FoundTexts:
        """Facts that hold at the time of the query; with ``ended`` also others, marked; with ``own``, the agent's."""
        return await asyncio.to_thread(self._find, query)

    def _find(self, query: TextQuery) -> FoundTexts:
        seq = self._views.view_seq(FACTS_PROJECTION)
        asserted_by = query.scope.agent_id if query.own else None
        words = query.query
        stands_for = {term: term for term in words.terms} | dict(words.wording.forms)
        with self._indexes.lock:
            index = self._indexes.fresh(query.workspace_id)
            hits = index.search(
                words.text,
                query.embedded,
                None,
                query.at_ms,
                query.limit,
                ended=query.ended,
                asserted_by=asserted_by,
                least=query.least,
            )
            compared = query.vector(index.model) is not None
            texts = [
                _of_fact(
                    hit.fact,
                    frozenset(term for form, term in stands_for.items() if form in hit.fact.counts),
                    index.vector_of(hit.fact) if compared else None,
                    query,
                )
                for hit in hits
            ]
            frequencies: Counter[int] = Counter()
            for form, term in stands_for.items():
                frequencies[term] += index.frequency(form)
            return FoundTexts(texts, frequencies, len(index), seq)


def _of_fact(fact: KnownFact, held: frozenset[int], vector: np.ndarray | None, query: TextQuery) -> FoundText:
    row = fact.row
    agent = row.asserted_by if row.asserted_by_type == "agent" else None
    standing = None
    if row.to_ms is not None and not fact.holds(query.now_ms) and fact.began(query.now_ms):
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
            "fact": FactPlace(
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
