"""Starts the memory documents of a node: search, providers, the block for prompts, the palace and layered memory.

Invariant: the node's stack stops everything that is started here, before the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime

from ...schemas.ports import ViewReader
from ...schemas.rules.text import Analyzer
from ...schemas.settings import Settings
from ..journal.intake.append import Journal
from ..layered.tokenizer import tokenizer_of
from ..layered.use_cases import Layered
from ..memory.block import MemoryBlocks
from ..memory.documents.owned import PromptDocuments
from ..memory.documents.use_cases import Documents
from ..memory.providers.choosing import DocumentStores, read_choices
from ..memory.providers.prompts import StoredPrompts
from ..operating.status import as_json
from ..palace.entity_finder import EntityFinder
from ..palace.searching import DrawerSearch
from ..palace.use_cases import Palace
from ..parts import Parts
from ..query.chunks.cache import CHUNKS_SHARE, ChunkCache
from ..query.chunks.combined import MemorySearch
from ..query.chunks.documents import DocumentSearch
from ..query.entries.queries import JournalQueries
from ..query.recall import RecallService
from .memory import Memory


@dataclass(frozen=True, slots=True)
class ServedDocuments:
    """The use-cases of one node."""

    search: DocumentSearch
    memory_search: MemorySearch
    stores: DocumentStores
    documents: Documents
    blocks: MemoryBlocks
    palace: Palace
    layered: Layered


async def start_documents(
    stack: AsyncExitStack,
    parts: Parts,
    memory: Memory,
    recall: RecallService,
    analyzer: Analyzer,
    journal: Journal,
    queries: JournalQueries,
    views: ViewReader,
    settings: Settings,
    clock: Callable[[], datetime],
    trouble: Callable[[], str | None],
) -> ServedDocuments:
    """Make and start them.

    Args:
        stack: Closes them.
        parts: Shows the search index in ``status``.
        memory: The use-cases over the journal.
        recall: Embeds queries and answers recalls.
        analyzer: Cuts queries into terms.
        journal: Records refusals.
        queries: Reads entries.
        views: The views of documents.
        settings: Name the document stores.
        clock: The time, UTC.
        trouble: Why the broker cannot take a write; None if it can.

    Raises:
        InvalidQuery: If a document store is not configured completely.
    """
    chunks = ChunkCache(views, (settings.hot_index_mb << 20) // CHUNKS_SHARE, clock)
    stack.callback(chunks.close)
    parts.show("document_index", lambda: as_json(chunks.figures()))
    search = DocumentSearch(
        chunks, recall.queries, analyzer=analyzer, memory_on=memory.agents.memory_enabled, record=memory.record_search
    )
    choices = await asyncio.to_thread(read_choices, settings)
    memory.document_store.serve(search.search, trouble)
    stores = DocumentStores(choices, memory.document_store, clock=clock)
    stack.push_async_callback(stores.close)
    documents = Documents(stores.of, memory.document_store, clock=clock)
    prompts = PromptDocuments(views)
    stack.callback(prompts.close)
    owned = StoredPrompts(prompts, stores)
    blocks = MemoryBlocks(views, memory.registry, owned, search, memory.operators.opener, clock=clock)
    stack.callback(blocks.close)
    drawers = DrawerSearch(views, analyzer, recall.queries, budget_bytes=settings.hot_index_mb << 20, clock=clock)
    stack.callback(drawers.close)
    parts.show("drawer_index", lambda: as_json(drawers.figures()))
    palace = Palace.over(views, journal, drawers, memory.record_search, clock)
    memory.knowledge.finder = EntityFinder(views, recall.embed)
    combined = MemorySearch(search, recall, memory.record_search)
    layered = Layered.over(
        views,
        journal,
        memory.knowledge,
        palace,
        memory.documents,
        owned,
        memory.registry,
        queries,
        recall,
        analyzer,
        memory.record_search,
        settings,
        clock,
        tokenizer_of(settings.context_tokenizer),
    )
    stack.callback(layered.close)
    parts.show("context", lambda: dict(layered.assembling.figures()))
    return ServedDocuments(search, combined, stores, documents, blocks, palace, layered)
