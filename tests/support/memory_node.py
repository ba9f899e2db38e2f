"""Journal, views and reactors of one node over a real broker, with a clock that a test moves: no HTTP, no supervision."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from Stemmer import Stemmer
from support.embedding import QUICK, until
from support.folded_journal import folded_journal
from support.stack import DEADLINE_S, HOT_INDEX_BYTES, SUBJECT_KEY

from bench.one_node import node_of
from crew_journal.consumers.adapters.choose import ObservedEmbedder
from crew_journal.consumers.health.reactor import HealthReactor
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.models.embed_reactor import EmbedReactor
from crew_journal.consumers.models.missing_reactor import ChunkLimits, IndexReactor
from crew_journal.consumers.reacting.pull_reactor import ViewsLimits, ViewsReactor
from crew_journal.consumers.reacting.sweeping import SweepLimits
from crew_journal.consumers.reactor import Reactor, ReactorContext
from crew_journal.schemas.core.errors import EmbedderUnavailable
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE, derived_id
from crew_journal.schemas.core.ports import Embedder, TokenBits
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.timestamps import format_ts, parse_ts, to_ms
from crew_journal.schemas.health.rules import EmbedderFailure
from crew_journal.schemas.models.chat import ChatModel
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.operations import RECALL
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.sweeps.events import SweepTicked
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.desk import parse
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.publishing import Writer
from crew_journal.services.node import Node
from crew_journal.services.palace.searching import DrawerSearch, NearDrawers
from crew_journal.services.recall.recall import RecallService

Kind = TypeVar("Kind", bound=ViewsReactor)
WORKSPACE = "acme"
ADMIN = Principal(token_id="t_admin", role=Role.ADMIN, workspace_id=WORKSPACE)


def agent(name: str) -> Principal:
    """The token of an agent of crew red, which may also decide as a keeper."""
    return Principal(
        token_id=f"t_{name}",
        role=Role.AGENT,
        workspace_id=WORKSPACE,
        agent_id=name,
        crew_id="red",
        may_publish=("keeper.*",),
    )


SWIFT_CHUNKS = ChunkLimits(wait_s=0.2, window_s=0.01, backoff_first_s=0.05, backoff_last_s=0.2, stop_s=2.0)
SWIFT = SweepLimits(wait_s=0.2, views_wait_s=60.0, backoff_first_s=0.02, backoff_last_s=0.1)


class Themes:
    """An embedder that knows a few words, one dimension each, and can be down; ``refused`` texts are refused for good."""

    WORDS = ("disk", "queue", "token", "other")

    def __init__(self) -> None:
        self.down = False
        self.refuse: Callable[[str], Exception | None] = lambda _text: None
        self.asked: list[str] = []

    @property
    def model_id(self) -> str:
        return "themes"

    @property
    def dim(self) -> int | None:
        return len(self.WORDS)

    def _vector(self, text: str) -> bytes:
        import numpy as np

        counts = np.array([text.count(word) for word in self.WORDS], "<f4")
        counts[-1] += 0.2
        unit: bytes = (counts / np.linalg.norm(counts)).astype("<f4").tobytes()
        return unit

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        await self.probe()
        self.asked += texts
        for text in texts:
            if (error := self.refuse(text)) is not None:
                raise error
        return [self._vector(text) for text in texts]

    async def embed_query(self, text: str) -> bytes:
        await self.probe()
        return self._vector(text)

    async def probe(self) -> None:
        if self.down:
            raise EmbedderUnavailable("themes does not answer", hint="start it")

    async def close(self) -> None:
        """Nothing to give back."""


class TokenThemes(Themes):
    """The same with bits of tokens: one for each word of a theme; ``quantiser`` None gives none."""

    def __init__(self) -> None:
        super().__init__()
        self.quantiser: int | None = None

    @property
    def token_quantiser(self) -> int | None:
        return self.quantiser

    async def embed_documents_tokens(self, texts: Sequence[str]) -> list[tuple[bytes, TokenBits | None]]:
        return [
            (vector, self._tokens(text)) for vector, text in zip(await self.embed_documents(texts), texts, strict=True)
        ]

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        return await self.embed_query(text), self._tokens(text)

    def _tokens(self, text: str) -> TokenBits | None:
        if self.quantiser is None:
            return None
        said = [word for word in text.split() if word in self.WORDS]
        bits = b"".join(bytes([self.WORDS.index(word) + 1]) * 8 for word in said)
        return TokenBits(self.quantiser, bits, 64, len(said))


@dataclass
class MemoryNode:
    """What a test talks to."""

    broker: ManagedBroker
    journal: Journal
    writer: Writer
    client: Any
    store: ViewStore
    host: Host
    embedder: Embedder
    observed: ObservedEmbedder
    now: datetime
    recall_service: RecallService
    received: dict[str, int]
    drawers: DrawerSearch
    reactors: list[Reactor] = field(default_factory=list)

    @property
    def shared(self) -> Node:
        """What use-cases share."""
        return node_of(
            self.store, journal=self.journal, writer=self.writer, recall=self.recall_service, clock=self.clock
        )

    def clock(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)

    def trouble(self, _model: str | None = None) -> EmbedderFailure | None:
        outcome = self.observed.outcome
        if outcome.error is None:
            return None
        return EmbedderFailure("themes does not answer", format_ts(outcome.since) if outcome.since else "")

    async def append(
        self,
        entry_id: str,
        summary: str,
        entry_type: str = "peer.escalation",
        *,
        by: str | None = None,
        received: datetime | None = None,
        **fields: Any,
    ) -> int:
        """Append an entry of crew red; returns its sequence.

        Args:
            entry_id: Its id.
            summary: What it says.
            entry_type: Its type.
            by: The agent whose token publishes it; an operator if absent.
            received: When the broker is taken to have received it; now if absent.
            **fields: Other fields.
        """
        if received is not None:
            self.received[entry_id] = to_ms(received)
        entry = {"id": entry_id, "summary": summary, "entry_type": entry_type, "crew_id": "red", **fields}
        return (await self.journal.append(ADMIN if by is None else agent(by), entry)).seq

    async def append_as(
        self, by: Principal, entry_id: str, summary: str, entry_type: str = "peer.escalation", **fields: Any
    ) -> int:
        """Append an entry with another token."""
        entry = {"id": entry_id, "summary": summary, "entry_type": entry_type, "crew_id": "red", **fields}
        return (await self.journal.append(by, entry)).seq

    async def tick(self, sweep: str, due: datetime | None = None) -> str:
        """Publish a tick, due now unless said; its due time."""
        spelt = format_ts(due or self.now)
        payload = SweepTicked.model_validate({"sweep": sweep, "due": spelt})
        entry_id = derived_id("tick", 1, f"{WORKSPACE}/{sweep}/{spelt}")
        await self.journal.record(WORKSPACE, payload, summary=f"{sweep} is due", entry_id=entry_id)
        return spelt

    def entries(self, entry_type: str) -> list[dict[str, Any]]:
        """Payloads of the view's entries of a type, in order."""
        import json

        sql = "SELECT payload, ts_ms, crew_id, severity, id FROM journal_entries WHERE entry_type = ? ORDER BY seq"
        return [
            {**json.loads(payload), "_ts_ms": ts, "_crew": crew, "_severity": severity, "_id": entry_id}
            for payload, ts, crew, severity, entry_id in self.store.rows(sql, [entry_type])
        ]

    async def swept(self, sweep: str, due: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait until the views know that the sweep of ``due`` finished."""
        found: list[dict[str, Any]] = []

        async def finished() -> object:
            known = "SELECT 1 FROM memory_sweeps WHERE sweep = ? AND finished_due_ms >= ?"
            if not self.store.rows(known, [sweep, to_ms(parse_ts(due))]):  # entries may be many
                return False
            found[:] = [
                entry for entry in self.entries("sweep.finished") if (entry["sweep"], entry["due"]) == (sweep, due)
            ]
            return found

        await until(finished, f"the {sweep} sweep of {due}", deadline_s)
        assert len(found) == 1
        return found[0]

    async def recall(self, query: str) -> Any:
        """Hybrid recall over the workspace."""
        return await self.recall_service.recall(ADMIN, parse(RECALL, {"query": query}))

    async def caught_up(self, seq: int) -> None:
        await self.store.wait_for(seq, DEADLINE_S)

    async def until_vectors(self, count: int) -> None:
        async def enough() -> object:
            [(n,)] = self.store.rows("SELECT count(*) FROM journal_embeddings WHERE dim > 0")
            return n >= count

        await until(enough, f"{count} vectors in the views")

    async def start(self, reactor: Reactor) -> Reactor:
        self.reactors.append(reactor)
        await reactor.start()
        return reactor

    def context(self, **parts: Any) -> ReactorContext:
        """What the node gives to its reactors; ``parts`` take the place of its own."""
        whole = ReactorContext(
            self.client,
            self.writer,
            None,
            None,
            self.clock,
            Settings(),
            views=self.store,
            finder=NearDrawers(self.drawers),
            embedder_for=lambda model: self.observed if model == self.observed.model_id else None,
            embed_unsettled=self.embed_unsettled,
            embedder_trouble=self.trouble,
            subject_key=SUBJECT_KEY,
        )
        return replace(whole, **parts)

    async def react(
        self, kind: type[Kind], *, chat: ChatModel | None = None, limits: ViewsLimits | None = SWIFT, **parts: Any
    ) -> Kind:
        """Start a reactor that reads views; ``parts`` as in ``context``."""
        context = self.context(**parts)
        assert context.views is not None
        made = kind(context, context.views, chat=chat, limits=limits)
        await self.start(made)
        return made

    async def start_health(self) -> HealthReactor:
        return await self.react(HealthReactor)

    async def start_index(self) -> IndexReactor:
        return await self.react(IndexReactor)

    def embed_unsettled(self, durable: str) -> frozenset[int] | None:
        """What the embed reactor on a durable has not settled."""
        for reactor in self.reactors:
            if isinstance(reactor, EmbedReactor) and reactor.durable == durable:
                return reactor.unsettled
        return None

    async def start_embed(self) -> EmbedReactor:
        made = EmbedReactor(self.client, self.writer, self.observed, clock=self.clock, limits=QUICK)
        await self.start(made)
        return made


@asynccontextmanager
async def memory_node(broker: ManagedBroker, embedder: Embedder, folder: Path) -> AsyncIterator[MemoryNode]:
    """A node whose embedder is the active model, without reactors as yet."""
    async with contextlib.AsyncExitStack() as ends:
        received: dict[str, int] = {}
        base = await ends.enter_async_context(folded_journal(broker, folder, "memory node", received=received))
        started = datetime.now(UTC)
        made: list[MemoryNode] = []
        observed = ObservedEmbedder(embedder, lambda: made[0].now)
        journal = Journal(base.writer, base.host.identities, clock=lambda: made[0].now)
        recall = RecallService(
            base.store,
            lambda _model: observed,
            analyzer=Analyzer(Stemmer),
            budget_bytes=HOT_INDEX_BYTES,
            clock=lambda: made[0].now,
        )
        ends.callback(recall.close)
        drawers = DrawerSearch(recall.cache, Analyzer(Stemmer), recall.queries, clock=lambda: made[0].now)
        made.append(
            MemoryNode(
                broker,
                journal,
                base.writer,
                base.client,
                base.store,
                base.host,
                embedder,
                observed,
                started,
                recall,
                received,
                drawers,
            )
        )
        try:
            payload = EmbeddingsActivated(model=embedder.model_id, embedder="minilm", dim=embedder.dim)
            done = await journal.record(SYSTEM_WORKSPACE, payload, summary="themes is used")
            await made[0].caught_up(done.seq)
            yield made[0]
        finally:
            for reactor in made[0].reactors:
                await reactor.stop()
