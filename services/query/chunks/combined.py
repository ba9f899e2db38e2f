"""The use-case ``search_memory``: documents and journal in one answer.

The two lists are disjoint: no chunk is an entry. Reciprocal rank fusion of disjoint lists only interleaves them, and that is
what this does; the order says nothing of whether a document or an entry answers better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ....schemas.events.memory import MemorySearched
from ....schemas.operations.document_search import (
    SEARCH_MEMORY,
    SNIPPET_CHARS,
    MemoryHit,
    SearchMemoryAnswer,
    SearchMemoryRequest,
)
from ....schemas.operations.recall import RecallHit, RecallRequest
from ....schemas.rules.tiers import scope_of
from ...desk import Caller
from ..hot.scope import ScopeKind
from ..recall import AnsweredRecall, RecallService
from .documents import DocumentSearch, FoundDocuments, RecordSearch, chunk_id, no_record
from .scope import SearchedOwners, memory_scope
from .search import RANK_CONSTANT, ChunkHit
from .snippet import DOTS


class MemorySearch:
    """Searches documents and journal.

    Args:
        documents: Searches documents.
        recall: Recalls entries.
        record: Records searches that found something.
    """

    def __init__(self, documents: DocumentSearch, recall: RecallService, record: RecordSearch = no_record) -> None:
        self._documents = documents
        self._recall = recall
        self._record = record

    async def search(self, caller: Caller, request: SearchMemoryRequest) -> SearchMemoryAnswer:
        """Both lists, interleaved; raises as ``memory_scope`` and ``RecallService.answer``."""
        owners, kind = memory_scope(caller.principal, request.scope, request.agent_id, request.crew_id)
        limit = request.hits_wanted
        if await self._documents.is_off(caller):
            owners = replace(owners, owners=())
        answered = await self._recall.answer(
            caller.principal,
            RecallRequest(
                query=request.query,
                k=limit,
                scope=kind.value,
                agent_id=owners.agent_id,
                crew_id=owners.crew_id if kind is ScopeKind.CREW_SHARED else None,
                walk_depth=0,
                min_seq=request.min_seq,
                workspace_id=caller.workspace_id,
            ),
        )
        documents = await self._documents.find(
            caller.workspace_id, owners, request.query, limit, min_seq=request.min_seq or 0
        )
        recalled = answered.response
        results = _interleaved(documents, recalled.hits, limit)
        return SearchMemoryAnswer(
            results=results,
            count=len(results),
            scope=kind.value,
            model=recalled.model,
            degraded=recalled.degraded,
            quarantined=documents.quarantined if caller.administers else (),
            receipt=self._recorded(caller, answered, owners, documents, results) if results else None,
            view_seq=min(documents.view_seq, recalled.view_seq),
        )

    def _recorded(
        self,
        caller: Caller,
        answered: AnsweredRecall,
        owners: SearchedOwners,
        found_documents: FoundDocuments,
        results: tuple[MemoryHit, ...],
    ) -> str | None:
        shown = [hit.entry_id for hit in results if hit.entry_id is not None]
        hits = answered.response.hits[: len(shown)]
        chunks = found_documents.hits[: len(results) - len(shown)]
        searched = MemorySearched(
            query=answered.request.query,
            scope=answered.scope.kind.value,
            crew_id=owners.crew_id,
            agent_id=owners.agent_id,
            recipe=answered.response.recipe,
            model=answered.response.model,
            hit_ids=tuple(shown),
            scores=tuple(hit.score for hit in hits),
            confidences=tuple(hit.confidence for hit in hits),
            mode=answered.request.mode,
            chunks=tuple(map(chunk_id, chunks)),
            asked_by=caller.principal.token_id,
        )
        return self._record(caller.principal, caller.workspace_id, searched)


def _interleaved(found_documents: FoundDocuments, entries: Sequence[RecallHit], limit: int) -> tuple[MemoryHit, ...]:
    """The best document, the best entry, and so on."""
    documents = [
        (rank, 0, _document(hit, snippet, rank))
        for rank, (hit, snippet) in enumerate(zip(found_documents.hits, found_documents.snippets, strict=True), 1)
    ]
    recalled = [(rank, 1, _entry(hit, rank)) for rank, hit in enumerate(entries, 1)]
    return tuple(hit for _, _, hit in sorted([*documents, *recalled], key=lambda ranked: ranked[:2])[:limit])


def _document(hit: ChunkHit, snippet: str, rank: int) -> MemoryHit:
    text = hit.owner.text_of(hit.slot)
    return MemoryHit(
        origin="document",
        score=1.0 / (RANK_CONSTANT + rank),
        snippet=snippet,
        source=scope_of(hit.owner.owner)[0].value,
        file=hit.owner.document_of(hit.slot).label,
        line=text.first_line,
        heading=text.breadcrumb,
    )


def _entry(hit: RecallHit, rank: int) -> MemoryHit:
    return MemoryHit(
        origin="entry",
        score=1.0 / (RANK_CONSTANT + rank),
        snippet=hit.summary if len(hit.summary) <= SNIPPET_CHARS else hit.summary[:SNIPPET_CHARS] + DOTS,
        source="journal",
        entry_id=hit.entry_id,
        entry_type=hit.entry_type,
        ts=hit.ts,
        agent_id=hit.agent_id,
        crew_id=hit.crew_id,
        confidence=hit.confidence,
    )


ANSWERS: Final = ((SEARCH_MEMORY, MemorySearch.search),)
