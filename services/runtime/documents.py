"""The memory documents of a node: search, providers, the block for prompts.

Invariant: the node's stack stops everything that is started here, before the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from ...schemas.operations import bundles, document_search, documents, files, memory_block, memory_settings
from ...schemas.operations.operation import Operation
from ..desk import Handler
from ..journal.intake.secrets import MODE_OF_SETTING
from ..memory.agents import Agents
from ..memory.block import MemoryBlocks
from ..memory.bundles import Bundles
from ..memory.documents.owned import PromptDocuments
from ..memory.documents.quarantine import Quarantine
from ..memory.documents.use_cases import Documents
from ..memory.files import Files
from ..memory.operators import Operators
from ..memory.providers.choosing import Choices, Providers, read_choices
from ..memory.providers.journal import JournalProvider
from ..memory.providers.prompts import ProvidedPrompts
from ..memory.providers.serving import ProvidedDocuments
from ..memory.registry import Registry
from ..memory.stores import MemoryStores
from ..node import Node
from ..operating.status import as_json
from ..parts import Parts
from ..query.chunks.cache import CHUNKS_SHARE, ChunkCache
from ..query.chunks.combined import MemorySearch
from ..query.chunks.documents import DocumentSearch


async def start_documents(
    node: Node, parts: Parts, trouble: Callable[[], str | None], choices: Choices | None = None
) -> None:
    """Make and start them.

    Args:
        node: What use-cases share; has them afterwards.
        parts: Shows the search index in ``status``.
        trouble: Why the broker cannot take a write; None if it can.
        choices: The provider of each workspace; those of the settings if absent.

    Raises:
        InvalidQuery: If a provider is not configured completely.
    """
    if choices is None:
        choices = await asyncio.to_thread(read_choices, node.settings)
    views, clock, settings, ends = node.views, node.clock, node.settings, node.ends
    agents, quarantine = node.use(Agents), Quarantine(settings.data_dir, clock)
    scrubber = MODE_OF_SETTING[settings.secrets]
    made = node.put(
        Documents, Documents(views, node.writer, node.journal, agents, quarantine, clock=clock, scrubber=scrubber)
    )
    ends.callback(made.close)
    node.put(Files, Files(views, made.writing.storing, agents, clock=clock))
    node.put(MemoryStores, MemoryStores(views, made.writing.storing, node.use(Registry), agents))
    node.put(Bundles, Bundles(views, made.writing, node.use(Operators)))
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
    node.put(MemorySearch, MemorySearch(search, node.recall, node.record_search))
    providers = node.put(
        Providers,
        Providers(
            choices,
            lambda scope: JournalProvider(made, search, views, trouble, scope, clock=clock),
            clock=clock,
        ),
    )
    ends.push_async_callback(providers.close)
    provided = node.put(
        ProvidedDocuments,
        ProvidedDocuments(made, search, providers, views, node.journal, agents, quarantine, clock=clock),
    )
    ends.callback(provided.close)
    prompts = PromptDocuments(views)
    ends.callback(prompts.close)
    owned = node.put(ProvidedPrompts, ProvidedPrompts(prompts, providers))
    opener = node.use(Operators).opener
    blocks = node.put(MemoryBlocks, MemoryBlocks(views, node.use(Registry), owned, search, opener, clock=clock))
    ends.callback(blocks.close)


def document_answers(node: Node) -> Iterator[tuple[Operation[Any, Any], Handler[Any, Any]]]:
    """The operations that every provider answers, and those that only the journal answers."""
    provided, journal, search = node.use(ProvidedDocuments), node.use(Documents), node.use(DocumentSearch)
    by_journal = provided.by_journal
    yield files.MEMORY_FILE, node.use(Files).run
    yield documents.DOCUMENT_READ, provided.read
    yield documents.DOCUMENT_WRITE, provided.write
    yield documents.APPEND_DAILY, provided.append_daily
    yield documents.DOCUMENT_RETRACT, provided.retract
    yield document_search.DOCUMENT_SEARCH, provided.search
    block = by_journal("a block as of a sequence", node.use(MemoryBlocks).build, lambda asked: asked.as_of is not None)
    yield memory_block.MEMORY_BLOCK, block
    yield documents.DOCUMENTS, by_journal("a list of documents", journal.reading.list)
    yield bundles.EXPORT_BUNDLE, by_journal("a bundle", node.use(Bundles).export)
    yield bundles.IMPORT_BUNDLE, by_journal("a bundle", node.use(Bundles).load)
    yield documents.DOCUMENT_VERSIONS, by_journal("versions", journal.reading.versions)
    yield documents.DOCUMENT_DIFF, by_journal("a diff of versions", journal.reading.diff)
    yield documents.DOCUMENT_RESTORE, by_journal("restoring a version", journal.writing.restore)
    yield memory_settings.MEMORY_CONFIG, journal.administration.config
    yield memory_settings.CONFIGURE_MEMORY, journal.administration.configure
    yield memory_settings.MEMORY_STATS, by_journal("figures of documents", journal.administration.stats)
    yield memory_settings.SWEEP_VERSIONS, by_journal("a sweep of versions", journal.administration.sweep)
    yield document_search.DOCUMENT_INDEX, by_journal("the state of the search index", search.status)
    yield document_search.DOCUMENT_REINDEX, by_journal("loading the search index", search.reindex)
    combined = node.use(MemorySearch)
    yield document_search.SEARCH_MEMORY, by_journal("searching documents and entries", combined.search)
