"""The use-cases of document search: search, state of the index, loading it again; and what is shown of a chunk.

Invariant: an answer is that of ``view_seq``; without a working model, search answers without the dense arm. Only the owners
that the token may read are given to the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Final, Literal, Protocol

from ...schemas.core.errors import NoSuchMemory
from ...schemas.core.principal import Principal
from ...schemas.core.table import Table
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.documents.operations import (
    DOCUMENT_INDEX,
    DOCUMENT_REINDEX,
    SEARCH_MEMORY,
    SNIPPET_CHARS,
    DocumentHit,
    DocumentIndexAnswer,
    DocumentIndexRequest,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    MemoryHit,
    SearchMemoryAnswer,
    SearchMemoryRequest,
)
from ...schemas.documents.rules import TIERS, scope_of
from ...schemas.documents.tables import (
    CHUNK_TEXTS,
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    DOCUMENTS,
    DOCUMENTS_PROJECTION,
)
from ...schemas.lineage.events import MemoryGiven
from ...schemas.recall.events import MemorySearched
from ...schemas.recall.operations import RecallHit, RecallRequest
from ...schemas.text.analyzer import Analyzer
from ..desk import Caller
from ..index.arrow import values_of
from ..index.cache import HotCache, Indexes
from ..index.query_embedding import QueryEmbedder
from ..index.rows import Rows
from ..index.scope import ScopeKind
from ..index.shelf import TEXT_COLUMNS, Shelf, TextSlot
from ..recall.asking import Query, query_of
from ..recall.finding import TextHit, find
from ..recall.kinds import DOTS, snippet_of
from ..recall.recall import AnsweredRecall, RecallService
from ..recall.recipes import DOCUMENTS as DOCUMENTS_RECIPE
from .addressing import SearchedOwners, file_scope, memory_scope

# The hot index of memory documents: the texts of their chunks, and the size and state of each document.
#
# Invariant: chunks of documents that the scanners block are in no hit.


_DOCUMENT_COLUMNS = ("key", "owner", "tier", "doc_key", "bytes", "finding", "retracted", "updated_ms")


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document: its owner and label, the bytes of its text, its last write, and whether the scanners block it."""

    owner: str
    label: str
    bytes: int
    updated_ms: int
    blocked: bool


class DocumentIndex(Shelf):
    """The chunks and documents of a workspace; see ``Shelf``. ``documents_held`` has the documents by key."""

    needed = frozenset((DOCUMENTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
    tables = (DOCUMENTS, CHUNK_TEXTS, CHUNK_VECTORS)

    def __init__(self, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self.documents_held: dict[int, IndexedDocument] = {}
        self.blocked: dict[int, IndexedDocument] = {}

    def of_owners(self, owners: Collection[str] | None) -> list[IndexedDocument]:
        """The documents of some owners, of all if None."""
        return [document for document in self.documents_held.values() if owners is None or document.owner in owners]

    def named(self, place: str, item: str) -> str:
        """The label of a document; of a tier that is not known here, its name and key; without a tier, its key."""
        rule = TIERS.get(place)
        return rule.label_of(item or None) if rule is not None else f"{place}/{item}".removeprefix("/")

    def time_of(self, key: int) -> int:
        """See ``Shelf``."""
        document = self.documents_held.get(key)
        return 0 if document is None else document.updated_ms

    def take(self, rows: Rows) -> None:
        """Take in documents, chunks and vectors of the workspace."""
        documents = rows.of(DOCUMENTS, *_DOCUMENT_COLUMNS)
        if documents is not None:
            columns = (values_of(documents, name) for name in _DOCUMENT_COLUMNS)
            for key, owner, tier, doc_key, size, finding, retracted, updated_ms in zip(*columns, strict=True):
                size, blocked = 0 if retracted else int(size), finding is not None
                held = IndexedDocument(owner, self.named(tier, doc_key or ""), size, int(updated_ms), blocked)
                self.documents_held[int(key)] = held
                self.blocked.pop(int(key), None)
                if blocked:
                    self.blocked[int(key)] = held
                self.put_item(int(key), ts_ms=held.updated_ms, hidden=blocked)
        chunks = rows.of(CHUNK_TEXTS, *TEXT_COLUMNS, order="owner, key, number")
        if chunks is not None:
            self.add(chunks)
        self.take_vectors(rows)

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """See ``Shelf``."""
        if not {"key"} <= set(values) <= ({"key", "number"} if table is CHUNK_TEXTS else {"key"}):
            return False
        self.remove(values["key"], values.get("number"))
        if table is DOCUMENTS:
            self.documents_held.pop(values["key"], None)
            self.blocked.pop(values["key"], None)
        return True


def document_indexes(cache: HotCache) -> Indexes[DocumentIndex]:
    """The hot indexes of memory documents."""
    return Indexes(cache, "documents", partial(TextSlot[DocumentIndex], make=DocumentIndex))


_BYTES_PER_KB: Final = 1_024


class RecordSearch(Protocol):
    """``ReceiptLog.keep``: records a search by a principal in a workspace; returns the receipt or None."""

    def __call__(
        self, asker: Principal, workspace_id: str, payload: MemorySearched | MemoryGiven, run: str | None = None
    ) -> str | None:
        """Record it; ``run`` counts if the request's header names no run."""
        ...


MemoryOn = Callable[[str, str], Awaitable[bool | None]]
"""``Agents.memory_enabled``: whether an agent's memory is on; None if the agent is not registered."""


def no_record(
    asker: Principal, workspace_id: str, payload: MemorySearched | MemoryGiven, run: str | None = None
) -> None:
    """The default if searches are not recorded."""


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A chunk that was found.

    Attributes:
        owner: Whose document it is in: ``a-<agent>``, ``c-<crew>`` or ``w``.
        label: The document's.
        first_line: The line at which it begins.
        heading: Headings above it, joined by `` > ``.
        text: Its text.
        snippet: The part of it that is shown.
        score: Its rank follows from this.
    """

    owner: str
    label: str
    first_line: int
    heading: str
    text: str
    snippet: str
    score: float

    @property
    def id(self) -> str:
        """``<owner>/<label>:<first line>``: unique in a workspace, since agent and crew may have a label both."""
        return f"{self.owner}/{self.label}:{self.first_line}"


def find_chunks(
    index: DocumentIndex,
    query: Query,
    limit: int,
    *,
    owners: Collection[str] | None,
    tier: str | None = None,
    analyzer: Analyzer,
    snippet_chars: int = SNIPPET_CHARS,
) -> list[FoundChunk]:
    """The best chunks of some owners, of all if None, and of a tier if one is named."""
    scoped = index.scoped(owners, None if tier is None else (tier,))
    found = find(index, scoped, query, DOCUMENTS_RECIPE, limit)

    def shown(hit: TextHit) -> FoundChunk:
        text = index.text_of(hit.slot)
        snippet = snippet_of(text.text, found.weights, analyzer, snippet_chars)
        owner, label = index.owner_of(hit.slot), index.name_of(hit.slot)
        return FoundChunk(owner, label, text.first_line, text.label, text.text, snippet, hit.score)

    return [shown(hit) for hit in found.hits]


# The part of a chunk that is shown with a hit.


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """What a search of documents found.

    Attributes:
        hits: Chunks, best first.
        model: Model of the compared vectors, or None.
        quarantined: Labels of documents in scope that the scanners block.
        view_seq: The sequence of the answer.
    """

    hits: list[FoundChunk]
    model: str | None
    quarantined: tuple[str, ...]
    view_seq: int


class DocumentSearch:
    """Searches memory documents.

    Args:
        cache: The hot indexes.
        queries: Embeds queries.
        analyzer: Turns the query into terms, as the fold of documents does.
        memory_on: Whether the memory of an agent in a workspace is on.
        record: Records searches that found something.
    """

    def __init__(
        self,
        cache: HotCache,
        queries: QueryEmbedder,
        *,
        analyzer: Analyzer,
        memory_on: MemoryOn,
        record: RecordSearch = no_record,
    ) -> None:
        self._indexes = document_indexes(cache)
        self._queries = queries
        self._analyzer = analyzer
        self._memory_on = memory_on
        self._record = record

    def figures(self) -> dict[str, int]:
        """What the hot indexes hold, for ``status``: workspaces, chunks, bytes, budget_bytes."""
        return self._indexes.figures("chunks")

    async def index(self, workspace_id: str, min_seq: int = 0) -> DocumentIndex:
        """The documents of a workspace; use it before the next ``await``."""
        return await self._indexes.get(workspace_id, min_seq)

    async def off(self, workspace_id: str, agent_id: str | None) -> bool:
        """Whether the memory of an agent is off."""
        return agent_id is not None and await self._memory_on(workspace_id, agent_id) is False

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """The best chunks in scope; raises as ``_scope``."""
        scope = await self._scope(caller, request)
        answer = await self.find(
            caller.workspace_id,
            scope,
            request.query,
            request.hits_wanted,
            tier=request.tier,
            min_seq=request.min_seq or 0,
        )
        if answer.hits:
            searched = MemorySearched(
                query=request.query,
                scope=(ScopeKind.OWN if scope.crew_id is None else ScopeKind.CREW_SHARED).value,
                agent_id=scope.agent_id,
                crew_id=scope.crew_id,
                recipe=DOCUMENTS_RECIPE.name,
                model=answer.model,
                chunks=tuple(hit.id for hit in answer.hits),
                asked_by=caller.principal.token_id,
            )
            self._record(caller.principal, caller.workspace_id, searched)
        results = tuple(map(_shown, answer.hits))
        return DocumentSearchAnswer(
            results=results,
            count=len(results),
            quarantined=answer.quarantined if caller.administers else (),
            model=answer.model,
            view_seq=answer.view_seq,
        )

    async def find(
        self,
        workspace_id: str,
        scope: SearchedOwners,
        query: str,
        limit: int,
        *,
        tier: str | None = None,
        min_seq: int = 0,
        snippet_chars: int = SNIPPET_CHARS,
    ) -> FoundDocuments:
        """Search the documents of some owners; nothing is recorded."""
        model = self._indexes.model_of(workspace_id)
        embedded = await self._queries.embed(query, model)
        index = await self._indexes.get(workspace_id, min_seq)
        if index.model != model:  # it was activated meanwhile
            model = index.model
            embedded = await self._queries.embed(query, model)
            index = await self._indexes.get(workspace_id, min_seq)
        vector = embedded.vector if embedded is not None and embedded.model == index.model else None
        found = find_chunks(
            index,
            query_of(query, self._analyzer, vector, None, None),
            limit,
            owners=scope.owners,
            tier=tier,
            analyzer=self._analyzer,
            snippet_chars=snippet_chars,
        )
        return FoundDocuments(found, index.model if vector is not None else None, _blocked(index, scope), index.seq)

    async def quarantined(self, workspace_id: str, scope: SearchedOwners, min_seq: int) -> tuple[str, ...]:
        """Labels of the documents in scope that the scanners block."""
        return _blocked(await self._indexes.get(workspace_id, min_seq), scope)

    async def status(self, caller: Caller, request: DocumentIndexRequest) -> DocumentIndexAnswer:
        """The state of the index; raises as ``_scope``."""
        scope = await self._scope(caller, request)
        index = await self._indexes.get(caller.workspace_id, request.min_seq or 0)
        return self._state(caller.workspace_id, index, scope)

    async def reindex(self, caller: Caller, request: DocumentIndexRequest) -> DocumentIndexAnswer:
        """Load the index again; raises as ``_scope``."""
        scope = await self._scope(caller, request)
        return self._state(caller.workspace_id, await self._indexes.reload(caller.workspace_id), scope)

    async def is_off(self, caller: Caller) -> bool:
        """Whether the caller's memory is off: then it is not read, neither its own documents nor its crew's."""
        return not caller.administers and await self.off(caller.workspace_id, caller.principal.agent_id)

    async def _scope(self, caller: Caller, request: DocumentSearchRequest | DocumentIndexRequest) -> SearchedOwners:
        """Whose documents a request is about; raises as ``file_scope``.

        Raises:
            NoSuchMemory: If the agent's memory is off.
        """
        scope = file_scope(caller.principal, request.scope, request.agent_id, request.crew_id)
        if await self.is_off(caller):
            raise NoSuchMemory(
                f"the memory of agent {caller.principal.agent_id} is off",
                hint="an operator turns it on: crew-journal agent update",
            )
        return scope

    def _state(self, workspace_id: str, index: DocumentIndex, scope: SearchedOwners) -> DocumentIndexAnswer:
        sizes = [document.bytes for document in index.of_owners(scope.owners) if document.bytes]
        slot = self._indexes.slot(workspace_id)
        indexed_at = None if slot is None else slot.indexed_at
        return DocumentIndexAnswer(
            total_files=len(sizes),
            total_chunks=index.scoped(scope.owners).size,
            indexed_at=None if indexed_at is None else format_ms(to_ms(indexed_at)),
            total_size_kb=ceil(sum(sizes) / _BYTES_PER_KB),
            search_ready=slot is not None and slot.index is not None and not slot.behind,
            view_seq=index.seq,
        )


def _blocked(index: DocumentIndex, scope: SearchedOwners) -> tuple[str, ...]:
    owners = scope.owners
    return tuple(sorted(held.label for held in index.blocked.values() if owners is None or held.owner in owners))


def _shown(hit: FoundChunk) -> DocumentHit:
    return DocumentHit(
        file=hit.label,
        snippet=hit.snippet,
        score=-hit.score,
        source=scope_of(hit.owner)[0].value,
        line=hit.first_line,
        heading=hit.heading,
    )


# The use-case ``search_memory``: documents and journal in one answer.


class MemorySearch:
    """Searches documents and journal.

    Args:
        documents: Knows which documents are blocked.
        recall: Recalls documents and entries.
        record: Records searches that found something.
    """

    def __init__(self, documents: DocumentSearch, recall: RecallService, record: RecordSearch = no_record) -> None:
        self._documents = documents
        self._recall = recall
        self._record = record

    async def search(self, caller: Caller, request: SearchMemoryRequest) -> SearchMemoryAnswer:
        """Both, ranked by recall; raises as ``memory_scope`` and ``RecallService.answer``."""
        owners, kind = memory_scope(caller.principal, request.scope, request.agent_id, request.crew_id)
        of_crew = (
            kind is ScopeKind.OWN and owners.crew_id is not None
        )  # an AGENT: documents of the crew, entries its own
        answered = await self._recall.answer(
            caller.principal,
            RecallRequest(
                query=request.query,
                kinds=("entries", "documents"),
                k=request.hits_wanted,
                scope=None if of_crew else kind.value,
                agent_id=owners.agent_id,
                crew_id=owners.crew_id if kind is ScopeKind.CREW_SHARED else None,
                walk_depth=0,
                min_seq=request.min_seq,
                workspace_id=caller.workspace_id,
            ),
        )
        recalled = answered.response
        blocked: tuple[str, ...] = ()
        if caller.administers:
            blocked = await self._documents.quarantined(caller.workspace_id, owners, request.min_seq or 0)
        ranks: Counter[str] = Counter()
        results = tuple(_memory_hit(hit, ranks) for hit in recalled.hits)
        return SearchMemoryAnswer(
            results=results,
            count=len(results),
            scope=kind.value,
            model=recalled.model,
            degraded=recalled.degraded,
            quarantined=blocked,
            receipt=self._recorded(caller, answered, owners) if results else None,
            view_seq=recalled.view_seq,
        )

    def _recorded(self, caller: Caller, answered: AnsweredRecall, owners: SearchedOwners) -> str | None:
        entries = [hit for hit in answered.response.hits if hit.document is None]
        searched = MemorySearched(
            query=answered.request.query,
            scope=answered.scope.kind.value,
            crew_id=owners.crew_id,
            agent_id=owners.agent_id,
            recipe=answered.response.recipe,
            model=answered.response.model,
            hit_ids=tuple(hit.entry_id for hit in entries),
            scores=tuple(hit.score for hit in entries),
            confidences=tuple(hit.confidence for hit in entries),
            mode=answered.request.mode,
            chunks=tuple(hit.entry_id for hit in answered.response.hits if hit.document is not None),
            asked_by=caller.principal.token_id,
            view_seq=answered.response.view_seq,
        )
        return self._record(caller.principal, caller.workspace_id, searched)


def _memory_hit(hit: RecallHit, ranks: Counter[str]) -> MemoryHit:
    """A hit with the score of its rank among those of its origin, which are counted in ``ranks``."""
    place = hit.document
    origin: Literal["document", "entry"] = "entry" if place is None else "document"
    ranks[origin] += 1
    score = 1.0 / (DOCUMENTS_RECIPE.rank_constant + ranks[origin])
    if place is not None:
        return MemoryHit(
            origin=origin,
            score=score,
            snippet=hit.summary,
            source=scope_of(place.owner)[0].value,
            file=place.file,
            line=place.line,
            heading=place.heading,
            confidence=hit.confidence,
        )
    return MemoryHit(
        origin=origin,
        score=score,
        snippet=hit.summary if len(hit.summary) <= SNIPPET_CHARS else hit.summary[:SNIPPET_CHARS] + DOTS,
        source="journal",
        entry_id=hit.entry_id,
        entry_type=hit.entry_type,
        ts=hit.ts,
        agent_id=hit.agent_id,
        crew_id=hit.crew_id,
        confidence=hit.confidence,
    )


ANSWERS: Final = (
    (DOCUMENT_INDEX, DocumentSearch.status),
    (DOCUMENT_REINDEX, DocumentSearch.reindex),
    (SEARCH_MEMORY, MemorySearch.search),
)
