"""The use-cases of document search: search, state of the index, loading it again.

Invariant: an answer is that of ``view_seq``; without a working model, search answers without the dense arm. Only the owners
that the token may read are given to the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

from ...schemas.core.errors import NoSuchMemory
from ...schemas.core.principal import Principal
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
from ...schemas.documents.rules import scope_of
from ...schemas.recall.events import MemorySearched
from ...schemas.recall.operations import RecallHit, RecallRequest
from ...schemas.text.analyzer import Analyzer
from ..desk import Caller
from ..index.query_embedding import QueryEmbedder
from ..index.scope import ScopeKind
from ..index.texts import ChunkCache, ChunkIndex, OwnerChunks
from ..recall.asking import query_of
from ..recall.recall import AnsweredRecall, RecallService
from .chunk_search import (
    DOTS,
    RANK_CONSTANT,
    ChunkHit,
    SearchedOwners,
    file_scope,
    memory_scope,
    search_chunks,
    snippet_of,
)

RECIPE: Final = "documents"
"""Recipe of ``memory.searched`` where only documents were searched."""
_BYTES_PER_KB: Final = 1_024

RecordSearch = Callable[[Principal, str, MemorySearched], str | None]
"""``ReceiptLog.keep``: records a search by a principal in a workspace; returns the receipt or None."""


MemoryOn = Callable[[str, str], Awaitable[bool | None]]
"""``Agents.memory_enabled``: whether an agent's memory is on; None if the agent is not registered."""


def no_record(_principal: Principal, _workspace_id: str, _searched: MemorySearched) -> None:
    """The default if searches are not recorded."""


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """What a search of documents found.

    Attributes:
        hits: Chunks, best first.
        snippets: The part of each that is shown.
        model: Model of the compared vectors, or None.
        quarantined: Labels of documents in scope that the scanners block.
        view_seq: The sequence of the answer.
    """

    hits: list[ChunkHit]
    snippets: list[str]
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
        cache: ChunkCache,
        queries: QueryEmbedder,
        *,
        analyzer: Analyzer,
        memory_on: MemoryOn,
        record: RecordSearch = no_record,
    ) -> None:
        self._cache = cache
        self._queries = queries
        self._analyzer = analyzer
        self._memory_on = memory_on
        self._record = record

    @property
    def cache(self) -> ChunkCache:
        """The hot indexes, for recall too."""
        return self._cache

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
                recipe=RECIPE,
                model=answer.model,
                chunks=tuple(map(chunk_id, answer.hits)),
                asked_by=caller.principal.token_id,
            )
            self._record(caller.principal, caller.workspace_id, searched)
        results = tuple(map(_shown, answer.hits, answer.snippets))
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
        model = self._cache.model_of(workspace_id)
        embedded = await self._queries.embed(query, model)
        index = await self._cache.get(workspace_id, min_seq)
        if index.model != model:  # it was activated meanwhile
            model = index.model
            embedded = await self._queries.embed(query, model)
            index = await self._cache.get(workspace_id, min_seq)
        vector = embedded.vector if embedded is not None and embedded.model == index.model else None
        owners = owners_in(index, scope)
        parsed_query = query_of(query, self._analyzer, vector, None, None)
        chunks_found = search_chunks(owners, parsed_query, limit, tier=tier, model=index.model)
        texts = [hit.owner.text_of(hit.slot).text for hit in chunks_found.hits]
        return FoundDocuments(
            chunks_found.hits,
            [snippet_of(text, chunks_found.weights, self._analyzer, snippet_chars) for text in texts],
            index.model if vector is not None else None,
            _blocked(owners),
            index.seq,
        )

    async def quarantined(self, workspace_id: str, scope: SearchedOwners, min_seq: int) -> tuple[str, ...]:
        """Labels of the documents in scope that the scanners block."""
        return _blocked(owners_in(await self._cache.get(workspace_id, min_seq), scope))

    async def status(self, caller: Caller, request: DocumentIndexRequest) -> DocumentIndexAnswer:
        """The state of the index; raises as ``_scope``."""
        scope = await self._scope(caller, request)
        index = await self._cache.get(caller.workspace_id, request.min_seq or 0)
        return self._state(caller.workspace_id, index, scope)

    async def reindex(self, caller: Caller, request: DocumentIndexRequest) -> DocumentIndexAnswer:
        """Load the index again; raises as ``_scope``."""
        scope = await self._scope(caller, request)
        return self._state(caller.workspace_id, await self._cache.reload(caller.workspace_id), scope)

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

    def _state(self, workspace_id: str, index: ChunkIndex, scope: SearchedOwners) -> DocumentIndexAnswer:
        owners = owners_in(index, scope)
        sizes = [document.bytes for owner in owners for document in owner.documents.values() if document.bytes]
        indexed_at = self._cache.indexed_at(workspace_id)
        return DocumentIndexAnswer(
            total_files=len(sizes),
            total_chunks=sum(int(owner.live.sum()) for owner in owners),
            indexed_at=None if indexed_at is None else format_ms(to_ms(indexed_at)),
            total_size_kb=ceil(sum(sizes) / _BYTES_PER_KB),
            search_ready=self._cache.is_current(workspace_id),
            view_seq=index.seq,
        )


def chunk_id(hit: ChunkHit) -> str:
    """``<owner>/<label>:<first line>``: unique in a workspace, since agent and crew may have documents of one label."""
    return f"{hit.owner.owner}/{hit.owner.document_of(hit.slot).label}:{hit.owner.first_line_of(hit.slot)}"


def owners_in(index: ChunkIndex, scope: SearchedOwners) -> Sequence[OwnerChunks]:
    """The owners in scope that have documents."""
    names = index.owners if scope.owners is None else scope.owners
    return [index.owners[name] for name in names if name in index.owners]


def _blocked(owners: Sequence[OwnerChunks]) -> tuple[str, ...]:
    return tuple(
        sorted(document.label for owner in owners for document in owner.documents.values() if document.blocked)
    )


def _shown(hit: ChunkHit, snippet: str) -> DocumentHit:
    text = hit.owner.text_of(hit.slot)
    return DocumentHit(
        file=hit.owner.document_of(hit.slot).label,
        snippet=snippet,
        score=-hit.score,
        source=scope_of(hit.owner.owner)[0].value,
        line=text.first_line,
        heading=text.breadcrumb,
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
        )
        return self._record(caller.principal, caller.workspace_id, searched)


def _memory_hit(hit: RecallHit, ranks: Counter[str]) -> MemoryHit:
    """A hit with the score of its rank among those of its origin, which are counted in ``ranks``."""
    place = hit.document
    origin: Literal["document", "entry"] = "entry" if place is None else "document"
    ranks[origin] += 1
    score = 1.0 / (RANK_CONSTANT + ranks[origin])
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
