"""Creates the node that use-cases share, and the services for HTTP and MCP; used by a running node and by tests.

Invariant: the stack stops all parts that are started here before the journal is closed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any, Final

import Stemmer

from ...schemas.core.operation import Operation
from ...schemas.core.ports import ViewReader
from ...schemas.settings import Settings
from ...schemas.text.analyzer import Analyzer
from ..access import accounts, tokens
from ..access import use_cases as access
from ..access.accounts import Accounts
from ..access.tokens import TokenRegistry
from ..access.use_cases import Agents
from ..budgets import Budgets
from ..chain import portable
from ..chain import use_cases as chain
from ..cluster import use_cases as cluster
from ..context import block, corrections, layered_facts, nudges
from ..context import use_cases as layered
from ..context.block import MemoryBlocks
from ..context.recalled_kinds import other_kinds
from ..context.use_cases import Assembling
from ..desk import Desk, Handler
from ..documents import files
from ..documents import reading as document_reading
from ..documents import search as document_search
from ..documents import use_cases as documents
from ..documents.choosing import DocumentStores, ProviderChoices, read_choices
from ..documents.files import Files, MemoryStores
from ..documents.journal_store import JournalStore
from ..documents.owned import PromptDocuments, StoredPrompts
from ..documents.reading import DocumentReading
from ..documents.search import DocumentSearch, MemorySearch, no_record
from ..documents.use_cases import Administration, Documents, JournalDocuments
from ..entries import queries as remembering
from ..entries.live_tail import LiveTail
from ..entries.queries import JournalQueries
from ..erasure import exporting, retention
from ..erasure import use_cases as erasures
from ..erasure.retention import Retention
from ..facts import use_cases as graph
from ..health import use_cases as health
from ..http.app import App
from ..http.route import AppServices, HttpLimits
from ..http.server import ConnectionBounds, HttpServer
from ..index.vectors import Words
from ..journal.intake.append import Journal
from ..journal.publishing import Writer
from ..learning import proposals
from ..learning import use_cases as learning
from ..lineage import bisecting, knowledge, notices, replaying, why
from ..lineage import use_cases as lineage
from ..lineage.held import Writes
from ..lineage.notices import Notices
from ..mcp.server import Audit, McpServer, Tools
from ..models import use_cases as models
from ..models.use_cases import EmbeddingModels
from ..node import Answers, Node
from ..operate import bundles, letters
from ..operate.bundles import Bundles
from ..operate.history import FigureHistory, resident_bytes
from ..operate.status import LongOperations, NodeStatus, as_json
from ..operators import use_cases as operators
from ..operators.use_cases import Operators
from ..ownership import ALONE, Ownership
from ..palace import filing, reading, tunnels
from ..palace.searching import DrawerSearch
from ..parts import Parts
from ..recall import expectations, receipts
from ..recall import use_cases as recalls
from ..recall.calibration import Calibrations
from ..recall.recall import RecallService, no_receipts
from ..recall.receipts import ReceiptLog
from ..registry import Registry
from ..relations import use_cases as relations
from ..standing import use_cases as retractions
from ..sweeps import use_cases as sweep_now
from ..sweeps.scheduler import AfterRuns, Sweeps
from ..telemetry import Telemetry
from ..web.routes import web_routes
from . import journal_side as link
from .embedding import Embedding

# Serves a node over HTTP, with its pages, and MCP.


async def start_mcp(
    parts: Parts, desk: Desk, journal: Journal, settings: Settings, noticed: Notices, *, can_write: Callable[[], bool]
) -> McpServer:
    """Start the MCP tools and the recording of their calls."""
    tools = Tools(desk, await parts.begin("tool_calls", Audit(journal)), noticed, can_write=can_write)
    return await parts.begin("mcp", McpServer(tools, HttpLimits.of(settings).body_bytes))


async def start_http(parts: Parts, services: AppServices, settings: Settings) -> HttpServer:
    """Start the HTTP server; it answers when this returns."""
    bounds = ConnectionBounds(connections=settings.http_connections)
    server = HttpServer(App(services, web_routes()), settings.http, before_stop=services.tail.close, bounds=bounds)
    return await parts.begin("http", server)


# Binds every operation to the method that answers it: a loop over the answers of the families.


FAMILIES: Final[tuple[Answers, ...]] = (
    recalls.ANSWERS,
    expectations.ANSWERS,
    receipts.ANSWERS,
    remembering.ANSWERS,
    health.ANSWERS,
    relations.ANSWERS,
    retractions.ANSWERS,
    corrections.ANSWERS,
    learning.ANSWERS,
    proposals.ANSWERS,
    operators.ANSWERS,
    sweep_now.ANSWERS,
    models.ANSWERS,
    nudges.ANSWERS,
    access.ANSWERS,
    graph.ANSWERS,
    reading.ANSWERS,
    filing.ANSWERS,
    tunnels.ANSWERS,
    layered.ANSWERS,
    layered_facts.ANSWERS,
    tokens.ANSWERS,
    accounts.ANSWERS,
    link.ANSWERS,
    letters.ANSWERS,
    erasures.ANSWERS,
    chain.ANSWERS,
    portable.ANSWERS,
    cluster.ANSWERS,
    exporting.ANSWERS,
    retention.ANSWERS,
    lineage.ANSWERS,
    notices.ANSWERS,
    why.ANSWERS,
    knowledge.ANSWERS,
    bisecting.ANSWERS,
    replaying.ANSWERS,
    documents.ANSWERS,
    document_reading.ANSWERS,
    block.ANSWERS,
    bundles.ANSWERS,
    files.ANSWERS,
    document_search.ANSWERS,
)


def handlers(node: Node, *, past: bool = False) -> Iterator[tuple[Operation[Any, Any], Handler[Any, Any]]]:
    """Every operation, or with ``past`` those with ``as_of``, with its handler: the method of the node's use-case."""
    for answers in FAMILIES:
        for operation, method in answers:
            if past and not operation.past:
                continue
            of: type[Any] = vars(sys.modules[method.__module__])[method.__qualname__.partition(".")[0]]
            yield operation, getattr(node.use(of), method.__name__)


def desk_of(node: Node, *, past: bool = False) -> Desk:
    """The desk, which answers every operation; with ``past``, those with ``as_of``."""
    desk = Desk(node.views, node.use(DocumentStores).require_journal, ownership=node.ownership)
    for operation, handler in handlers(node, past=past):
        desk.bind(operation, handler)
    return desk


# The memory documents of a node: search, stores, the block for prompts.


async def start_documents(
    node: Node, parts: Parts, trouble: Callable[[], str | None], choices: ProviderChoices | None = None
) -> None:
    """Create and start the memory documents.

    Args:
        node: The node, to which the memory documents are added.
        parts: Shows the search index in ``status``.
        trouble: Returns why the broker cannot accept a write; None if it can.
        choices: The store of each workspace; by default from the settings.

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
    node.put(Files, Files(views, journal, clock=clock))
    node.put(MemoryStores, MemoryStores(views, journal, node.use(Registry)))
    node.put(Bundles, Bundles(views, in_journal, node.use(Operators)))
    search = node.put(
        DocumentSearch,
        DocumentSearch(
            node.recall.cache,
            node.recall.queries,
            analyzer=node.analyzer,
            memory_on=agents.memory_enabled,
            record=node.record_search,
        ),
    )
    parts.show("document_index", search.figures)
    journal.serve(search.search, trouble)
    node.put(MemorySearch, MemorySearch(search, node.recall, node.record_search))
    stores = node.put(DocumentStores, DocumentStores(choices, journal, clock=clock))
    ends.push_async_callback(stores.close)
    node.put(Documents, Documents(stores.of, journal, clock=clock))
    prompts = PromptDocuments(views)
    ends.callback(prompts.close)
    owned = node.put(StoredPrompts, StoredPrompts(prompts, stores))
    opener = node.use(Operators).opener
    blocks = node.put(
        MemoryBlocks, MemoryBlocks(views, node.use(Registry), owned, search, opener, node.record_search, clock=clock)
    )
    ends.callback(blocks.close)


async def make_node(
    stack: AsyncExitStack,
    parts: Parts,
    *,
    views: ViewReader,
    journal: Journal,
    writer: Writer,
    settings: Settings,
    clock: Callable[[], datetime],
    subject_key: bytes,
    embedding: Embedding,
    static_table: Callable[[], Words | None],
    trouble: Callable[[], str | None],
    choices: ProviderChoices | None = None,
    ownership: Ownership = ALONE,
) -> Node:
    """Create the node and start its shared parts; the caller starts ``Sweeps`` after the parts that handle ticks.

    Args:
        stack: Closes everything.
        parts: Collects the figures of the parts.
        views: The views.
        journal: Appends entries.
        writer: Publishes messages.
        settings: Of the node.
        clock: The time now, UTC.
        subject_key: The key of the hash that names people.
        embedding: The embedding models, started.
        static_table: Returns the current static table of late interaction, or None.
        trouble: Returns why the broker cannot accept a write; None if it can.
        choices: The provider of each workspace; by default from the settings.
        ownership: For which workspaces the node decides.
    """
    queries = JournalQueries(views)
    stack.callback(queries.close)
    log = ReceiptLog(journal, lambda: writer.client.is_connected, Writes(views).complete)
    await log.start()
    stack.push_async_callback(log.stop)
    analyzer = Analyzer(Stemmer.Stemmer)
    recall = RecallService(
        views,
        embedding.running,
        analyzer=analyzer,
        budget_bytes=settings.hot_index_mb << 20,
        clock=clock,
        punctuality=embedding.punctuality,
        record=log.record if settings.query_log else no_receipts,
        static_table=static_table,
        calibrations=Calibrations(embedding.running),
    )
    stack.callback(recall.close)
    parts.show("hot_index", recall.figures)
    node = Node(
        views=views,
        journal=journal,
        writer=writer,
        queries=queries,
        recall=recall,
        embedders=embedding,
        analyzer=analyzer,
        record_search=log.keep if settings.query_log else no_record,
        settings=settings,
        clock=clock,
        subject_key=subject_key,
        ends=stack,
        ownership=ownership,
    )
    node.put(ReceiptLog, log)
    stack.callback(node.put(Registry, Registry(views)).close)
    drawers = node.put(DrawerSearch, DrawerSearch(recall.cache, analyzer, recall.queries, clock=clock))
    parts.show("drawer_index", drawers.figures)
    await start_documents(node, parts, trouble, choices)
    recall.others = other_kinds(node)
    parts.show("context", lambda: dict(node.use(Assembling).figures()))
    after_runs = AfterRuns(node)

    async def also_due() -> None:
        await node.use(Administration).sweep_due()
        await node.use(Retention).erase_due()
        await after_runs.check()

    stack.push_async_callback(node.put(Sweeps, Sweeps(node, also=also_due)).stop)
    return node


async def make_services(
    node: Node,
    parts: Parts,
    *,
    tail: LiveTail,
    tokens: TokenRegistry,
    operations: LongOperations,
    projections: Mapping[str, int],
    about: Mapping[str, Any],
    budgets: Budgets,
    limits: HttpLimits,
    telemetry: Telemetry | None = None,
) -> AppServices:
    """The services for HTTP and MCP: handlers of all operations, status, and tools.

    Args:
        node: What use-cases share.
        parts: The parts of the node.
        tail: The live tail.
        tokens: The tokens.
        operations: Long operations.
        projections: Name → version of each.
        about: Facts for ``status`` that do not change.
        budgets: The tokens' budgets.
        limits: Bounds of HTTP.
        telemetry: Records spans; None if no receiver is configured.
    """
    node.put(TokenRegistry, tokens)
    people = node.use(Accounts)
    await people.prune()
    status = NodeStatus(
        node.views,
        parts,
        projections=projections,
        memory=lambda workspace_id, of_node: _memory_figures(node, workspace_id, of_node),
        provider=node.use(DocumentStores).health,
        about=about,
        clock=node.clock,
    )
    desk = desk_of(node)
    desk.telemetry = telemetry
    client = node.writer.client
    noticed = await parts.begin("notices", node.use(Notices))
    history = FigureHistory(partial(_sampled, node, parts), node.settings.data_dir, lambda: node.clock().timestamp())
    return AppServices(
        journal=node.journal,
        queries=node.queries,
        tail=tail,
        desk=desk,
        tokens=tokens,
        accounts=people,
        status=status,
        operations=operations,
        models=node.use(EmbeddingModels),
        mcp=await start_mcp(parts, desk, node.journal, node.settings, noticed, can_write=lambda: client.is_connected),
        notices=noticed,
        stores=node.use(MemoryStores),
        history=await parts.begin("history", history),
        budgets=budgets,
        limits=limits,
        telemetry=telemetry,
    )


async def _sampled(node: Node, parts: Parts) -> dict[str, float | None]:
    figures = await parts.figures("stream", "disk")
    head = figures["stream"]["head"]  # while the broker is away, that of the views, and no bytes
    return {
        "head": head,
        "lag": max(0, head - node.views.view_seq()),
        "stream_bytes": figures["stream"].get("bytes"),
        "resident_bytes": resident_bytes(),
        "free_bytes": figures["disk"]["free_bytes"],
    }


def _memory_figures(node: Node, workspace_id: str | None, of_node: bool) -> dict[str, Any]:
    """Figures for ``status``: the sweeps of a workspace (of all if None), and the node's logs if ``of_node``; blocking."""
    shown: dict[str, Any] = node.use(Sweeps).figures(workspace_id, reasons=of_node)
    shown["operators"] = node.use(Operators).figures()
    if of_node:
        shown["receipts"] = as_json(node.use(ReceiptLog).figures())
    return shown
