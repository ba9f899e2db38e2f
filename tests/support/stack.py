"""A whole service for one test: broker, streams, writer, views, live feed, and HTTP on a free port.

Unlike the real composition root it has no reactors, no supervision and no dead letters in NATS: HTTP tests do not need them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import httpx
from starlette.applications import Starlette
from Stemmer import Stemmer
from support.fake_node import FakeModels, FakeNode
from support.folded_journal import folded_journal
from support.nats import running_broker

from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.reactor import ReactorContext
from crew_journal.schemas.operations.tokens import BrokerAnswer, TokenRequest
from crew_journal.schemas.principal import Role
from crew_journal.schemas.provider import ProviderScope
from crew_journal.schemas.rules.text import Analyzer
from crew_journal.schemas.settings import Settings
from crew_journal.services.access.new_token import NewToken
from crew_journal.services.access.owner_token import ensure_owner_token
from crew_journal.services.access.tokens import TokenRegistry
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.desk import Desk
from crew_journal.services.http.app import App
from crew_journal.services.http.connections import ConnectionBounds
from crew_journal.services.http.ports import AppServices, HttpLimits
from crew_journal.services.http.server import HttpServer
from crew_journal.services.journal.broker.connection import Connection
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.intake.secrets import SecretGuard
from crew_journal.services.journal.publishing.writer import Writer
from crew_journal.services.layered.use_cases import Layered
from crew_journal.services.mcp.audit import Audit
from crew_journal.services.mcp.server import McpServer
from crew_journal.services.mcp.tools import Tools
from crew_journal.services.memory.agents import Agents
from crew_journal.services.memory.block import MemoryBlocks
from crew_journal.services.memory.bundles import Bundles
from crew_journal.services.memory.calibration import Calibration
from crew_journal.services.memory.conversation import Conversations
from crew_journal.services.memory.documents.administration import Administration
from crew_journal.services.memory.documents.journal_store import JournalStore
from crew_journal.services.memory.documents.owned import PromptDocuments
from crew_journal.services.memory.documents.provision import Provision
from crew_journal.services.memory.documents.use_cases import Documents, JournalDocuments
from crew_journal.services.memory.files import Files
from crew_journal.services.memory.health import MemoryHealth
from crew_journal.services.memory.learning import Learning
from crew_journal.services.memory.models import EmbeddingModels
from crew_journal.services.memory.nudges import NudgeService
from crew_journal.services.memory.operators import Operators
from crew_journal.services.memory.priorities import Priorities
from crew_journal.services.memory.proposals import Proposals
from crew_journal.services.memory.providers.bound import StoreProvider
from crew_journal.services.memory.providers.choosing import Choice, Choices, DocumentStores
from crew_journal.services.memory.providers.prompts import StoredPrompts
from crew_journal.services.memory.receipt_log import ReceiptLog
from crew_journal.services.memory.receipts import Receipts
from crew_journal.services.memory.registry import Registry
from crew_journal.services.memory.reindex import Reindexing
from crew_journal.services.memory.relations import Relations
from crew_journal.services.memory.remembering import remember
from crew_journal.services.memory.retractions import Retractions
from crew_journal.services.memory.skills import Skills
from crew_journal.services.memory.stores import MemoryStores
from crew_journal.services.memory.sweep_now import SweepNow
from crew_journal.services.memory.sweeps import Sweeps
from crew_journal.services.memory.workspace_settings import WorkspaceSettingsService
from crew_journal.services.operating.backup import Connect, backup_records
from crew_journal.services.operating.letters import Letters
from crew_journal.services.operating.long_work import Operations
from crew_journal.services.operating.status import Node
from crew_journal.services.palace.graph import KnowledgeGraph
from crew_journal.services.palace.searching import DrawerSearch
from crew_journal.services.palace.use_cases import Palace
from crew_journal.services.query.chunks.cache import ChunkCache
from crew_journal.services.query.chunks.combined import MemorySearch
from crew_journal.services.query.chunks.documents import DocumentSearch
from crew_journal.services.query.entries.graph import GraphQueries
from crew_journal.services.query.entries.live_tail import LiveTail
from crew_journal.services.query.entries.queries import JournalQueries
from crew_journal.services.query.entries.superseding import SupersedingCheck
from crew_journal.services.query.recall import RecallService
from crew_journal.services.query.render import RenderService
from crew_journal.services.runtime.bindings import Handlers, bind_operations

POLL_S = 0.01
SUBJECT_KEY = b"the key of tests"
HOT_INDEX_BYTES = 64 * 1024 * 1024
DEADLINE_S = 120.0
"""Seconds that a test waits for a condition; a slow and busy machine may need many of them."""
HTTP_TIMEOUT_S = 180.0
"""Longer than any wait in the service. The default of httpx, 5 s, is shorter than some of them."""


@dataclass
class Stack:
    """A running service, and the parts of it that tests use directly."""

    url: str
    owner: str
    services: AppServices
    tokens: TokenRegistry
    store: ViewStore
    host: Host
    node: FakeNode
    server: HttpServer
    client_of_broker: Connection
    writer: Writer
    recall: RecallService
    timekeeper: Sweeps
    app: Starlette
    stores: DocumentStores

    async def token(self, role: Role, workspace: str, *, agent: str | None = None, crew: str | None = None) -> NewToken:
        owner = self.tokens.authenticate(self.owner)
        return await self.tokens.create(
            owner, TokenRequest(role=role, workspace_id=workspace, agent_id=agent, crew_id=crew)
        )

    def provider(self, scope: ProviderScope) -> StoreProvider:
        """The document store of a workspace as a memory provider."""
        return StoreProvider(self.stores.of(scope.workspace_id), scope)

    def client(self, token: str | None = None) -> AsyncCrewJournal:
        return AsyncCrewJournal(self.url, token or self.owner)

    def sync_client(self, token: str | None = None) -> CrewJournal:
        return CrewJournal(self.url, token or self.owner)

    def http(self, token: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self.owner}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=HTTP_TIMEOUT_S)

    def context(self) -> ReactorContext:
        """What the node gives to its reactors, without models."""
        return ReactorContext(
            self.client_of_broker,
            self.writer,
            None,
            None,
            lambda: datetime.now(UTC),
            Settings(),
            views=self.store,
            subject_key=SUBJECT_KEY,
        )


async def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Poll until ``condition`` holds, for conditions without an event to wait for."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(POLL_S)


def _connected(client: Connection) -> Connect:
    async def connect(_stack: AsyncExitStack, _name: str) -> Connection:
        return client

    return connect


@asynccontextmanager
async def running_stack(
    data_dir: Path,
    *,
    limits: HttpLimits | None = None,
    connection_bounds: ConnectionBounds | None = None,
    tail_queue: int | None = None,
    token_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    providers_chosen: Choices | None = None,
    received: Mapping[str, int] | None = None,
) -> AsyncIterator[Stack]:
    """A service with its files in ``data_dir``; it stops when the block ends; ``received`` as in ``folded_journal``."""
    async with contextlib.AsyncExitStack() as ends:
        broker = await ends.enter_async_context(running_broker(data_dir))
        base = await ends.enter_async_context(folded_journal(broker, data_dir, "test stack", received=received))
        store = base.store
        check = SupersedingCheck(base.store)
        secrets = SecretGuard(store)
        ends.callback(secrets.close)
        journal = Journal(
            base.writer, base.host.identities, clock=lambda: datetime.now(UTC), superseding=check, secrets=secrets
        )
        owner = ensure_owner_token(data_dir)
        tokens = TokenRegistry(store, journal, owner, clock=token_clock)
        tokens.load()
        queries = JournalQueries(store)
        ends.callback(queries.close)
        bounds = {} if tail_queue is None else {"queue": tail_queue}
        tail = LiveTail(store, queries, head=lambda: stream_head(base.client), **bounds)
        node = FakeNode()
        parts = node.parts(ends)
        log = ReceiptLog(journal, lambda: base.client.is_connected)
        await log.start()
        ends.push_async_callback(log.stop)
        recall = RecallService(
            store,
            lambda _: None,
            analyzer=Analyzer(Stemmer),
            budget_bytes=HOT_INDEX_BYTES,
            clock=lambda: datetime.now(UTC),
            record=log.record,
        )
        ends.callback(recall.close)
        timekeeper = Sweeps(journal, store, clock=lambda: datetime.now(UTC))
        sweeps = SweepNow(
            journal,
            store,
            clock=lambda: datetime.now(UTC),
            catch_up=timekeeper.catch_up,
            wait_s=DEADLINE_S,
        )
        models = cast(EmbeddingModels, FakeModels(node.asked))
        registry = Registry(store)
        ends.callback(registry.close)
        agents = Agents(store, journal, registry, Provision(store, base.writer))
        chunks = ChunkCache(store, HOT_INDEX_BYTES, lambda: datetime.now(UTC))
        ends.callback(chunks.close)
        document_search = DocumentSearch(
            chunks, recall.queries, analyzer=Analyzer(Stemmer), memory_on=agents.memory_enabled, record=log.keep
        )
        drawers = DrawerSearch(
            store,
            Analyzer(Stemmer),
            recall.queries,
            budget_bytes=HOT_INDEX_BYTES,
            clock=lambda: datetime.now(UTC),
        )
        ends.callback(drawers.close)
        in_journal = JournalStore(store, base.writer, journal, agents, data_dir, clock=lambda: datetime.now(UTC))
        ends.callback(in_journal.close)
        in_journal.serve(document_search.search, lambda: None)
        documents = JournalDocuments(in_journal, clock=lambda: datetime.now(UTC))
        stores = DocumentStores(providers_chosen or Choices(Choice(), {}), in_journal, clock=lambda: datetime.now(UTC))
        ends.push_async_callback(stores.close)
        prompt_documents = PromptDocuments(store)
        ends.callback(prompt_documents.close)
        stored_prompts = StoredPrompts(prompt_documents, stores)
        operators = Operators(store, journal, documents, key=SUBJECT_KEY)
        knowledge = KnowledgeGraph(store, journal, clock=lambda: datetime.now(UTC))
        palace = Palace.over(store, journal, drawers, log.keep, lambda: datetime.now(UTC))
        layered = Layered.over(
            store,
            journal,
            knowledge,
            palace,
            documents,
            stored_prompts,
            registry,
            queries,
            recall,
            Analyzer(Stemmer),
            log.keep,
            Settings(),
            lambda: datetime.now(UTC),
        )
        ends.callback(layered.close)
        parts.show("context", lambda: dict(layered.assembling.figures()))
        desk = Desk(store, stores.require_journal)
        bind_operations(
            desk,
            Handlers(
                recall=recall,
                render=RenderService(recall),
                receipts=Receipts(store, journal, log),
                remember=partial(remember, journal),
                conversations=Conversations(journal, recall),
                priorities=Priorities(journal, store),
                health=MemoryHealth(store, sweeps, lambda _: {"mode": "sparse-only"}, clock=lambda: datetime.now(UTC)),
                letters=cast(Letters, node),
                nudges=NudgeService(store, journal, clock=lambda: datetime.now(UTC)),
                workspace_settings=WorkspaceSettingsService(store, journal, clock=lambda: datetime.now(UTC)),
                calibration=Calibration(store),
                tokens=tokens,
                broker=lambda: BrokerAnswer(url="nats://127.0.0.1:4222", user="crew-journal", password="secret"),
                models=models,
                timekeeper=timekeeper,
                sweeps=sweeps,
                learning=Learning(journal, store, clock=lambda: datetime.now(UTC), catch_up=timekeeper.catch_up),
                proposals=Proposals(journal, store, Retractions(store, queries, journal), Skills(in_journal)),
                operators=operators,
                bundles=Bundles(store, documents, operators),
                reindexing=Reindexing(journal, store, clock=lambda: datetime.now(UTC)),
                relations=Relations(store, queries, journal),
                retractions=Retractions(store, queries, journal),
                document_search=document_search,
                memory_search=MemorySearch(document_search, recall, log.keep),
                knowledge=knowledge,
                graph=GraphQueries(store, queries),
                agents=agents,
                blocks=MemoryBlocks(
                    store,
                    registry,
                    stored_prompts,
                    document_search,
                    operators.opener,
                    clock=lambda: datetime.now(UTC),
                ),
                documents=Documents(stores.of, in_journal, clock=lambda: datetime.now(UTC)),
                administration=Administration(store, journal, clock=lambda: datetime.now(UTC)),
                files=Files(store, in_journal, clock=lambda: datetime.now(UTC)),
                palace=palace,
                layered=layered,
            ),
        )
        audit = await parts.begin("tool_calls", Audit(journal))
        services = AppServices(
            journal=journal,
            queries=queries,
            tail=tail,
            desk=desk,
            tokens=tokens,
            status=Node(
                store,
                parts,
                projections={projection.name: projection.version for projection in base.host.projections},
                memory=lambda workspace_id, _node: timekeeper.figures(workspace_id),
                provider=stores.health,
                about={"started_at": datetime.now(UTC)},
                clock=lambda: datetime.now(UTC),
            ),
            operations=Operations(
                rebuild=node.rebuild,
                verify=node.verify,
                salvage=node.salvage,
                backup=partial(backup_records, _connected(base.client), lambda: datetime.now(UTC), SUBJECT_KEY),
            ),
            models=models,
            mcp=await parts.begin("mcp", McpServer(Tools(desk, audit, lambda: base.client.is_connected), 1 << 22)),
            stores=MemoryStores(store, in_journal, registry),
            limits=limits or HttpLimits(),
        )
        app = App(services)
        server = HttpServer(app, "127.0.0.1:0", before_stop=tail.close, bounds=connection_bounds)
        await parts.begin("http", server)
        yield Stack(
            server.url,
            owner,
            services,
            tokens,
            store,
            base.host,
            node,
            server,
            base.client,
            base.writer,
            recall,
            timekeeper,
            app,
            stores,
        )
