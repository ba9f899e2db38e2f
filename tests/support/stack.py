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
from types import SimpleNamespace
from typing import cast

import httpx
from starlette.applications import Starlette
from support.fake_node import FakeModels, FakeNode
from support.folded_journal import folded_journal
from support.nats import running_broker
from support.views import MEMORY_MB

from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.reactor import ReactorContext
from crew_journal.schemas.access.operations import TokenRequest
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.documents.provider import ProviderScope
from crew_journal.schemas.settings import Settings
from crew_journal.services.access.tokens import NewToken, TokenRegistry, ensure_owner_token
from crew_journal.services.budgets import Budgets
from crew_journal.services.chain.anchors import signing_key
from crew_journal.services.chain.sealer import Sealer
from crew_journal.services.chain.use_cases import ChainProofs
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.documents.adapters import StoreProvider
from crew_journal.services.documents.choosing import DocumentStores, ProviderChoices
from crew_journal.services.entries.live_tail import LiveTail
from crew_journal.services.entries.rows import SupersedingCheck
from crew_journal.services.erasure.use_cases import ErasableStream as ErasedFrom
from crew_journal.services.erasure.use_cases import Erasures
from crew_journal.services.http.app import App
from crew_journal.services.http.route import AppServices, HttpLimits
from crew_journal.services.http.server import ConnectionBounds, HttpServer
from crew_journal.services.journal.broker.connection import BrokerConnection
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.intake.secrets import SecretGuard
from crew_journal.services.journal.publishing import Writer
from crew_journal.services.models.use_cases import EmbeddingModels
from crew_journal.services.node import Node, PastMoments
from crew_journal.services.operate.backup import Connect, backup_records
from crew_journal.services.operate.letters import Letters
from crew_journal.services.operate.status import LongOperations
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.runtime.composition import make_node, make_services
from crew_journal.services.runtime.embedding import Embedding
from crew_journal.services.runtime.journal_side import BrokerLink
from crew_journal.services.runtime.past import PastViews
from crew_journal.services.runtime.views import NodeViews
from crew_journal.services.sweeps.use_cases import SweepNow

POLL_S = 0.02
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
    client_of_broker: BrokerConnection
    writer: Writer
    shared: Node
    app: Starlette

    @property
    def recall(self) -> RecallService:
        return self.shared.recall

    async def token(self, role: Role, workspace: str, *, agent: str | None = None, crew: str | None = None) -> NewToken:
        owner = self.tokens.authenticate(self.owner)
        return await self.tokens.create(
            owner, TokenRequest(role=role, workspace_id=workspace, agent_id=agent, crew_id=crew)
        )

    def provider(self, scope: ProviderScope) -> StoreProvider:
        """The document store of a workspace as a memory provider."""
        return StoreProvider(self.shared.use(DocumentStores).of(scope.workspace_id), scope)

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


def _connected(client: BrokerConnection) -> Connect:
    async def connect(_stack: AsyncExitStack, _name: str) -> BrokerConnection:
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
    providers_chosen: ProviderChoices | None = None,
    received: Mapping[str, int] | None = None,
) -> AsyncIterator[Stack]:
    """A service with its files in ``data_dir``; it stops when the block ends; ``received`` as in ``folded_journal``."""
    async with contextlib.AsyncExitStack() as ends:
        broker = await ends.enter_async_context(running_broker(data_dir))
        base = await ends.enter_async_context(folded_journal(broker, data_dir, "test stack", received=received))
        store, clock = base.store, lambda: datetime.now(UTC)
        secrets = SecretGuard(store)
        ends.callback(secrets.close)
        check = SupersedingCheck(store)
        journal = Journal(base.writer, base.host.identities, clock=clock, superseding=check, secrets=secrets)
        owner = ensure_owner_token(data_dir)
        tokens = TokenRegistry(store, journal, owner, clock=token_clock)
        tokens.load()
        node = FakeNode()
        parts = node.parts(ends)
        settings = Settings(data_dir=data_dir, embedder="none", http="127.0.0.1:0", hot_index_mb=HOT_INDEX_BYTES >> 20)
        embedding = Embedding(settings, store, journal, clock=clock)
        await embedding.start(ends)
        shared = await make_node(
            ends,
            parts,
            views=store,
            journal=journal,
            writer=base.writer,
            settings=settings,
            clock=clock,
            subject_key=SUBJECT_KEY,
            embedding=embedding,
            static_table=lambda: None,
            trouble=lambda: None,
            choices=providers_chosen,
        )
        shared.put(BrokerLink, BrokerLink(None, "nats://127.0.0.1:4222", "crew-journal", "secret"))
        shared.put(Letters, cast(Letters, node))
        shared.put(EmbeddingModels, cast(EmbeddingModels, FakeModels(node.asked)))
        shared.put(Erasures, Erasures(shared, cast(ErasedFrom, node)))  # tests of erasures start a real node
        shared.put(
            ChainProofs,
            ChainProofs(shared, Sealer(shared, node.read, node.last_seq, signing_key(SUBJECT_KEY), ()), node.read),
        )  # of seals too
        past_of = SimpleNamespace(store=store, host=base.host, source=base.source, memory_mb=MEMORY_MB)
        past = PastViews(shared, cast(NodeViews, past_of), embedding, tokens, lambda: None)
        shared.put(PastMoments, PastMoments(past.at, past.sequence_of, past.walk))
        shared.put(SweepNow, SweepNow(shared, wait_s=DEADLINE_S))
        bounds = {} if tail_queue is None else {"queue": tail_queue}
        services = await make_services(
            shared,
            parts,
            tail=LiveTail(store, shared.queries, head=lambda: stream_head(base.client), **bounds),
            tokens=tokens,
            operations=LongOperations(
                rebuild=node.rebuild,
                verify=node.verify,
                salvage=node.salvage,
                backup=partial(backup_records, _connected(base.client), clock, SUBJECT_KEY),
            ),
            projections={projection.name: projection.version for projection in base.host.projections},
            about={"started_at": clock()},
            budgets=Budgets(),
            limits=limits or HttpLimits(),
        )
        await parts.begin("past_views", past)
        services.desk.past = past.at
        app = App(services)
        server = HttpServer(app, settings.http, before_stop=services.tail.close, bounds=connection_bounds)
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
            shared,
            app,
        )
