"""A whole service for one test: broker, streams, writer, views, live feed, and HTTP on a free port.

What it leaves out of the real composition root is what no HTTP test needs: reactors, supervision, dead letters in NATS.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from starlette.applications import Starlette
from Stemmer import Stemmer
from support.nats import running_broker
from support.views import MEMORY_MB

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.positions import position_of
from crew_journal.consumers.host.host import Host, Parked
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.errors import NotFound, RefusedByOneView
from crew_journal.schemas.operations.embeddings import (
    ActivateModelRequest,
    AddModelRequest,
    DropModelRequest,
    ModelActivated,
    ModelChange,
    ModelsAnswer,
    ModelsRequest,
)
from crew_journal.schemas.operations.letters import (
    DeadLetter,
    DeadLetterAnswer,
    DeadLettersAnswer,
    DeadLettersRequest,
    DiscardRequest,
    RetryRequest,
)
from crew_journal.schemas.operations.tokens import BrokerAnswer, TokenRequest
from crew_journal.schemas.principal import Role
from crew_journal.schemas.rules.text import Analyzer
from crew_journal.schemas.subjects import JOURNAL_STREAM
from crew_journal.services.access.new_token import NewToken
from crew_journal.services.access.owner_token import ensure_owner_token
from crew_journal.services.access.tokens import TokenRegistry
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.desk import Caller, Desk
from crew_journal.services.endings import end_task
from crew_journal.services.http.app import App
from crew_journal.services.http.connections import ConnectionBounds
from crew_journal.services.http.ports import AppServices, HttpLimits
from crew_journal.services.http.server import HttpServer
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import Connection, connect
from crew_journal.services.journal.broker.streams import declare_streams, stream_head
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.publishing.writer import Writer
from crew_journal.services.memory.agents import Agents
from crew_journal.services.memory.block import MemoryBlocks
from crew_journal.services.memory.calibration import Calibration
from crew_journal.services.memory.documents.owned import PromptDocuments
from crew_journal.services.memory.documents.provision import Provision
from crew_journal.services.memory.documents.use_cases import Documents
from crew_journal.services.memory.health import MemoryHealth
from crew_journal.services.memory.models import EmbeddingModels
from crew_journal.services.memory.nudges import NudgeService
from crew_journal.services.memory.priorities import Priorities
from crew_journal.services.memory.receipt_log import ReceiptLog
from crew_journal.services.memory.receipts import Receipts
from crew_journal.services.memory.registry import Registry
from crew_journal.services.memory.reindex import Reindexing
from crew_journal.services.memory.relations import Relations
from crew_journal.services.memory.remembering import remember
from crew_journal.services.memory.retractions import Retractions
from crew_journal.services.memory.sweep_now import SweepNow
from crew_journal.services.memory.sweeps import Sweeps
from crew_journal.services.memory.workspace_settings import WorkspaceSettingsService
from crew_journal.services.operating.letters import Letters
from crew_journal.services.operating.long_work import Operations, Progress
from crew_journal.services.operating.status import Node
from crew_journal.services.parts import Parts
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

FETCH = 1_000
FETCH_WAIT_S = 0.02
POLL_S = 0.01
FLUSH_EVERY_S = 0.05
HOT_INDEX_BYTES = 64 * 1024 * 1024
DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
HTTP_TIMEOUT_S = 180.0
"""Longer than a service waits for anything. httpx by itself gives up after 5 s, which is no fault of the service."""


@dataclass
class FakeNode:
    """Parts and administration that remember what they were asked."""

    reasons: dict[str, str] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    failing: bool | Exception = False

    async def rebuild(
        self, projections: Sequence[str] | None, accept_loss: bool, _actor: str | None, progress: Progress
    ) -> Mapping[str, Any]:
        self.asked.append(("rebuild", (projections, accept_loss) if accept_loss else projections))
        progress(1, 2)
        if isinstance(self.failing, Exception):
            raise self.failing
        if self.failing:
            raise NotFound("no projection of that name", hint="see status")
        return {"entries": 2}

    async def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"entry": {"id": "e1", "summary": "lost"}}
        yield {"decision": {"id": "d1"}}
        yield {"result": {"entries": 1, "decisions": 1}}

    async def verify(self, progress: Progress) -> Mapping[str, Any]:
        progress(2, 2)
        return {"same": True}

    async def show(self, caller: Caller, asked: DeadLettersRequest) -> DeadLettersAnswer:
        return DeadLettersAnswer(
            dead_letters=tuple(
                letter
                for letter in self.letters
                if caller.workspace_or_all in (None, letter.workspace_id) and asked.state in (None, letter.state)
            )
        )

    async def _letter(self, caller: Caller, seq: int) -> DeadLetter:
        for letter in (await self.show(caller, DeadLettersRequest())).dead_letters:
            if letter.seq == seq:
                return letter
        raise NotFound(f"no dead letter {seq}")

    async def retry(self, caller: Caller, asked: RetryRequest) -> DeadLetterAnswer:
        letter = await self._letter(caller, asked.seq)
        if letter.projection != "decode" and not asked.force:
            raise RefusedByOneView(f"only {letter.projection} could not fold {asked.seq}", hint="give it a new version")
        return DeadLetterAnswer(seq=letter.seq, state="retried", new_seq=letter.seq + 1)

    async def discard(self, caller: Caller, asked: DiscardRequest) -> DeadLetterAnswer:
        letter = await self._letter(caller, asked.seq)
        self.asked.append(("discard", asked.reason))
        return DeadLetterAnswer(seq=letter.seq, state="discarded")

    def parts(self, ends: contextlib.AsyncExitStack) -> Parts:
        """Parts that nothing is started for; one is in trouble if ``reasons`` has its name."""
        parts = Parts(ends)
        sections: dict[str, dict[str, Any]] = {
            "stream": {"head": 7},
            "embedder": {"mode": "sparse-only", "model": None},
        }
        for name in ("stream", "broker", "disk", "embedder", "journal_damage", "ingest"):
            parts.show(name, partial(sections.get, name, {}), partial(self.reasons.get, name))
        return parts


@dataclass
class FakeModels:
    """Administration of models that remembers what it was asked."""

    asked: list[tuple[str, Any]]

    async def show(self, caller: Caller, _asked: ModelsRequest) -> ModelsAnswer:
        return ModelsAnswer(workspace_id=caller.workspace_or_all, models=())

    async def add(self, _caller: Caller, asked: AddModelRequest) -> ModelChange:
        self.asked.append(("add", asked.model))
        return ModelChange(model=asked.model, changed=True)

    async def activate(self, caller: Caller, asked: ActivateModelRequest) -> ModelActivated:
        where = caller.workspace_or_all
        self.asked.append(("activate", (where, asked.model, asked.reason, asked.force)))
        return ModelActivated(model=asked.model, changed=True, workspace_id=where)

    async def compare(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        self.asked.append(("compare", (workspace_id, models, queries, k, recipe)))
        return _compared()

    async def drop(self, _caller: Caller, asked: DropModelRequest) -> ModelChange:
        self.asked.append(("drop", (asked.model, asked.reason)))
        return ModelChange(model=asked.model, changed=True)


async def _compared() -> AsyncIterator[Mapping[str, Any]]:
    yield {"result": {"same": True}}


@dataclass
class Stack:
    """What a test talks to."""

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

    async def token(self, role: Role, workspace: str, *, agent: str | None = None, crew: str | None = None) -> NewToken:
        owner = self.tokens.authenticate(self.owner)
        return await self.tokens.create(
            owner, TokenRequest(role=role, workspace_id=workspace, agent_id=agent, crew_id=crew)
        )

    def client(self, token: str | None = None) -> AsyncCrewJournal:
        return AsyncCrewJournal(self.url, token or self.owner)

    def sync_client(self, token: str | None = None) -> CrewJournal:
        return CrewJournal(self.url, token or self.owner)

    def http(self, token: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self.owner}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=HTTP_TIMEOUT_S)


async def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Wait for something that tells nobody when it happens."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  # nobody sets an event
            await asyncio.sleep(POLL_S)


async def _feed(client: Connection, host: Host) -> None:
    """Everything of JOURNAL, in order, into the host."""
    messages = await client.jetstream().pull_subscribe("", durable="test-stack", stream=JOURNAL_STREAM)
    while True:
        try:
            fetched = await messages.fetch(FETCH, timeout=FETCH_WAIT_S)
        except (NatsTimeout, TimeoutError):
            continue
        raw = [
            RawMessage(
                found.metadata.sequence.stream,
                found.subject,
                found.headers,
                found.data,
                position_of(found.reply).published_ms,
            )
            for found in fetched
        ]
        await host.fold(raw)
        for found in fetched:
            await found.ack()


@dataclass(frozen=True)
class FoldedJournal:
    """What every node of a test stands on: a connection, the journal's writer, and views that follow the journal."""

    client: Connection
    writer: Writer
    store: ViewStore
    host: Host


@asynccontextmanager
async def folded_journal(broker: ManagedBroker, folder: Path, name: str) -> AsyncIterator[FoldedJournal]:
    """Streams, a writer and views in ``folder`` that are fed while the block runs; a fold that failed fails the block."""

    async def park(parked: Parked) -> None:
        raise AssertionError(f"{parked.projection} cannot fold {parked.message.seq}: {parked.reason}")

    async with contextlib.AsyncExitStack() as ends:
        client = await connect(broker.url, broker.user, broker.password, name)
        ends.push_async_callback(client.close)
        streams = await declare_streams(client)
        writer = Writer(client, atomic=streams.atomic)
        await writer.open()
        ends.push_async_callback(writer.close)
        store = ViewStore.open(folder / "views.duckdb", memory_mb=MEMORY_MB)
        ends.callback(store.close)
        host = Host(store, discover_projections(), park=park, housekeeping=False)
        await host.open()
        ends.push_async_callback(host.close)
        feed = asyncio.create_task(_feed(client, host))
        try:
            yield FoldedJournal(client, writer, store, host)
        finally:
            with contextlib.suppress(NatsError):  # the broker may be gone before the feed
                await end_task(feed)


@asynccontextmanager
async def running_stack(
    data_dir: Path,
    *,
    limits: HttpLimits | None = None,
    connection_bounds: ConnectionBounds | None = None,
    tail_queue: int | None = None,
    token_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncIterator[Stack]:
    """A service below ``data_dir``, ended when the block is left."""
    async with contextlib.AsyncExitStack() as ends:
        broker = await ends.enter_async_context(running_broker(data_dir))
        base = await ends.enter_async_context(folded_journal(broker, data_dir, "test stack"))
        store = base.store
        check = SupersedingCheck(base.store)
        journal = Journal(base.writer, base.host.identities, clock=lambda: datetime.now(UTC), superseding=check)
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
        documents = Documents(store, base.writer, journal, agents, clock=lambda: datetime.now(UTC))
        ends.callback(documents.close)
        prompt_documents = PromptDocuments(store)
        ends.callback(prompt_documents.close)
        desk = Desk(store)
        bind_operations(
            desk,
            Handlers(
                recall=recall,
                render=RenderService(recall),
                receipts=Receipts(store, journal, log),
                remember=partial(remember, journal),
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
                reindexing=Reindexing(journal, store, clock=lambda: datetime.now(UTC)),
                relations=Relations(store, queries, journal),
                retractions=Retractions(store, queries, journal),
                document_search=document_search,
                memory_search=MemorySearch(document_search, recall, log.keep),
                graph=GraphQueries(store, queries),
                agents=agents,
                blocks=MemoryBlocks(
                    store, registry, prompt_documents, document_search, clock=lambda: datetime.now(UTC)
                ),
                documents=documents,
            ),
        )
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
                about={"started_at": datetime.now(UTC)},
                clock=lambda: datetime.now(UTC),
            ),
            operations=Operations(rebuild=node.rebuild, verify=node.verify, salvage=node.salvage),
            models=models,
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
        )
