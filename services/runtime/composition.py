"""Makes the node that use-cases share, and the services that the shells expose; the same for a running node and for tests.

Invariant: the stack stops everything that is started here, before the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import Stemmer

from ...schemas.ports import ViewReader
from ...schemas.rules.text import Analyzer
from ...schemas.settings import Settings
from ..access.tokens import TokenRegistry
from ..budgets import Budgets
from ..http.ports import AppServices, HttpLimits
from ..journal.intake.append import Journal
from ..journal.publishing.writer import Writer
from ..layered.assembling import Assembling
from ..memory.after_runs import AfterRuns
from ..memory.documents.administration import Administration
from ..memory.models import EmbeddingModels
from ..memory.operators import Operators
from ..memory.providers.choosing import DocumentStores, ProviderChoices
from ..memory.receipt_log import ReceiptLog
from ..memory.registry import Registry
from ..memory.stores import MemoryStores
from ..memory.sweeps import Sweeps
from ..node import Node
from ..operating.long_work import LongOperations
from ..operating.status import NodeStatus, as_json
from ..palace.searching import DrawerSearch
from ..parts import Parts
from ..query.chunks.documents import no_record
from ..query.entries.live_tail import LiveTail
from ..query.entries.queries import JournalQueries
from ..query.evidence.calibrating import Calibrations
from ..query.hot.token_store import Words
from ..query.recall import RecallService, no_receipts
from .answers import desk_of
from .documents import start_documents
from .embedding import Embedding
from .serving import start_mcp


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
) -> Node:
    """Make the node and start what its use-cases share; the caller starts ``Sweeps``, once what follows a tick is up.

    Args:
        stack: Closes everything.
        parts: Where each part shows its figures.
        views: The views.
        journal: Appends entries.
        writer: Publishes messages.
        settings: Of the node.
        clock: The time now, UTC.
        subject_key: The key of the hash that names people.
        embedding: The embedding models, started.
        static_table: The present static table of late interaction, or None.
        trouble: Why the broker cannot take a write; None if it can.
        choices: The provider of each workspace; those of the settings if absent.
    """
    queries = JournalQueries(views)
    stack.callback(queries.close)
    log = ReceiptLog(journal, lambda: writer.client.is_connected)
    await log.start()
    stack.push_async_callback(log.stop)
    analyzer = Analyzer(Stemmer.Stemmer)
    budget_bytes = settings.hot_index_mb << 20
    recall = RecallService(
        views,
        embedding.running,
        analyzer=analyzer,
        budget_bytes=budget_bytes,
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
    )
    node.put(ReceiptLog, log)
    stack.callback(node.put(Registry, Registry(views)).close)
    drawers = DrawerSearch(views, analyzer, recall.queries, budget_bytes=budget_bytes, clock=clock)
    stack.callback(node.put(DrawerSearch, drawers).close)
    parts.show("drawer_index", lambda: as_json(drawers.figures()))
    await start_documents(node, parts, trouble, choices)
    parts.show("context", lambda: dict(node.use(Assembling).figures()))
    after_runs = AfterRuns(node)

    async def also_due() -> None:
        await node.use(Administration).sweep_due()
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
) -> AppServices:
    """What the shells expose: every operation with its answer, status, and the tools of models.

    Args:
        node: What use-cases share.
        parts: What the node consists of.
        tail: The live tail.
        tokens: The tokens.
        operations: Long operations.
        projections: Name → version of each.
        about: Facts for ``status`` that do not change.
        budgets: What tokens may use up.
        limits: Bounds of HTTP.
    """
    node.put(TokenRegistry, tokens)
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
    client = node.writer.client
    return AppServices(
        journal=node.journal,
        queries=node.queries,
        tail=tail,
        desk=desk,
        tokens=tokens,
        status=status,
        operations=operations,
        models=node.use(EmbeddingModels),
        mcp=await start_mcp(parts, desk, node.journal, node.settings, can_write=lambda: client.is_connected),
        stores=node.use(MemoryStores),
        budgets=budgets,
        limits=limits,
    )


def _memory_figures(node: Node, workspace_id: str | None, of_node: bool) -> dict[str, Any]:
    """Figures for ``status``: the sweeps of a workspace (of all if None), and the node's logs if ``of_node``; blocking."""
    shown: dict[str, Any] = node.use(Sweeps).figures(workspace_id, reasons=of_node)
    shown["operators"] = node.use(Operators).figures()
    if of_node:
        shown["receipts"] = as_json(node.use(ReceiptLog).figures())
    return shown
