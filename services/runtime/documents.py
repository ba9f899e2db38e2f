"""The memory documents of a node: search, stores, the block for prompts.

Invariant: the node's stack stops everything that is started here, before the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..journal.intake.secrets import MODE_OF_SETTING
from ..memory.agents import Agents
from ..memory.block import MemoryBlocks
from ..memory.bundles import Bundles
from ..memory.documents.administration import Administration
from ..memory.documents.journal_store import JournalStore
from ..memory.documents.owned import PromptDocuments
from ..memory.documents.reading import DocumentReading
from ..memory.documents.use_cases import Documents, JournalDocuments
from ..memory.files import Files
from ..memory.operators import Operators
from ..memory.providers.choosing import DocumentStores, ProviderChoices, read_choices
from ..memory.providers.prompts import StoredPrompts
from ..memory.registry import Registry
from ..memory.stores import MemoryStores
from ..node import Node
from ..operating.status import as_json
from ..parts import Parts
from ..query.chunks.cache import CHUNKS_SHARE, ChunkCache
from ..query.chunks.combined import MemorySearch
from ..query.chunks.documents import DocumentSearch


async def start_documents(
    node: Node, parts: Parts, trouble: Callable[[], str | None], choices: ProviderChoices | None = None
) -> None:
    """Make and start them.

    Args:
        node: What use-cases share; has them afterwards.
        parts: Shows the search index in ``status``.
        trouble: Why the broker cannot take a write; None if it can.
        choices: The store of each workspace; those of the settings if absent.

    Raises:
        InvalidQuery: If a document store is not configured completely.
    """
    if choices is None:
        choices = await asyncio.to_thread(read_choices, node.settings)
    views, clock, settings, ends = node.views, node.clock, node.settings, node.ends
    agents = node.use(Agents)
    journal = node.put(
        JournalStore, JournalStore(views, node.writer, node.journal, agents, settings.data_dir, clock=clock)
    )
    ends.callback(journal.close)
    node.put(DocumentReading, journal.reading)
    in_journal = node.put(JournalDocuments, JournalDocuments(journal, clock=clock))
    scrubber = MODE_OF_SETTING[settings.secrets]
    node.put(Administration, Administration(views, node.journal, clock=clock, scrubber=scrubber))
    node.put(Files, Files(views, journal, clock=clock))
    node.put(MemoryStores, MemoryStores(views, journal, node.use(Registry)))
    node.put(Bundles, Bundles(views, in_journal, node.use(Operators)))
    chunks = ChunkCache(views, (settings.hot_index_mb << 20) // CHUNKS_SHARE, clock)
    ends.callback(chunks.close)
    parts.show("document_index", lambda: as_json(chunks.figures()))
    search = node.put(
        DocumentSearch,
        DocumentSearch(
            chunks,
            node.recall.queries,
            analyzer=node.analyzer,
            memory_on=agents.memory_enabled,
            record=node.record_search,
        ),
    )
    journal.serve(search.search, trouble)
    node.put(MemorySearch, MemorySearch(search, node.recall, node.record_search))
    stores = node.put(DocumentStores, DocumentStores(choices, journal, clock=clock))
    ends.push_async_callback(stores.close)
    node.put(Documents, Documents(stores.of, journal, clock=clock))
    prompts = PromptDocuments(views)
    ends.callback(prompts.close)
    owned = node.put(StoredPrompts, StoredPrompts(prompts, stores))
    opener = node.use(Operators).opener
    blocks = node.put(MemoryBlocks, MemoryBlocks(views, node.use(Registry), owned, search, opener, clock=clock))
    ends.callback(blocks.close)
