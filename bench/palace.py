"""The palace at its limits, in process: search, wake-up and traverse over 10,000 drawers, and the hot path.

The palace is folded from its own events: 10,000 drawers of 40 words with random vectors, 5,000 entities, 50,000 facts that
name a drawer each. Query vectors are given. The hot path files exchanges through the classes of its reactor, publishes into
a list, and folds what it published; broker and embedding are left out.

Quality is measured on ``../shared/data/locomo_dev`` (said plainly when absent): turns go through the hot path, alternating
as user and agent, one workspace a conversation, and MiniLM embeds the drawers. A drawer counts for each turn of which it
contains the first 80 characters.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import Stemmer

from bench.corpus import Corpus, random_units
from bench.figures import MS, Report, at_least, latencies, say
from bench.journals import DIM, MODEL, OWNER, never_park, raw
from bench.one_node import node_of
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import lines_of
from bench.recall import ReadyEmbedder, activation, fold_all
from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, install_minilm
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.palace.exchange_filing import Filing
from crew_journal.consumers.reacting.pull_reactor import encode_control
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.envelope import ChunkVectorDerived
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE, hash64
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.ports import Embedder, Published
from crew_journal.schemas.entries.rules import AGENT_RESPONSE, USER_MESSAGE
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.models.events import EmbeddingsActivated, encode_chunk_vector
from crew_journal.schemas.palace.events import DrawerFiled
from crew_journal.schemas.palace.exchanges import Exchange, ExchangeTurn, Thresholds, exchanges_of
from crew_journal.schemas.palace.operations import PalaceRecipe, PalaceSearchRequest, TraverseRequest, WakeUpRequest
from crew_journal.schemas.palace.rules import drawer_id
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.desk import Caller
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.query_embedding import QueryEmbedder
from crew_journal.services.palace.reading import PalaceReading
from crew_journal.services.palace.searching import DrawerSearch, NearDrawers
from crew_journal.services.palace.tunnels import Navigation

WORKSPACE: Final = "palace"
SEARCH_P50_MS: Final = 5.0
WAKE_UP_P50_MS: Final = 5.0
TRAVERSE_P50_MS: Final = 10.0
EXCHANGES_PER_S: Final = 200.0
WINGS, ROOMS = 12, 60
WORDS_OF_TURN: Final = 40
GROUP: Final = 128
K: Final = 10
HEAD_CHARS: Final = 80
NAMES: Final = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Iris", "Juniper")
THRESHOLDS: Final = Thresholds.of(None, None, has_model=False)


def _control(workspace: str, payload: ControlPayload, name: str) -> OutgoingMessage:
    return encode_control(workspace, payload, fact_id=name, cause="bench", reactor="bench@1", summary="bench")


def _vector(workspace: str, text: str, vector: bytes, model: str = MODEL) -> OutgoingMessage:
    fact = ChunkVectorDerived(0, workspace, model, hash64(text), len(vector) // 4, vector, "bench", 0, "bench@1")
    return encode_chunk_vector(fact, 1)


def _texts(corpus: Corpus) -> list[str]:
    return [" ".join(corpus.words[rank] for rank in corpus.ranks(n).tolist()) for n in range(corpus.entries)]


def _name(n: int) -> str:
    return f"{NAMES[n % 10]} {NAMES[n // 10 % 10]} {n // 100}"


def _palace(texts: Sequence[str], entities: int, facts: int) -> list[OutgoingMessage]:
    vectors = random_units(len(texts), DIM, 3)
    made, ids = [], []
    for n, text in enumerate(texts):
        wing, room = f"wing {n % WINGS}", f"room {n % ROOMS}"
        ids.append(drawer_id(wing, room, text))
        filed = DrawerFiled(
            drawer_id=ids[-1], wing=wing, room=room, content=text, memory_type="general", importance=n % 6
        )
        made += [_vector(WORKSPACE, text, vectors[n].tobytes()), _control(WORKSPACE, filed, f"drawer-{n}")]
    for n in range(facts):
        ends = [
            FactEntity(entity_id=entity_id(name), name=name) for name in (_name(n % entities), _name(n * 7 % entities))
        ]
        fact = FactAsserted(
            fact_id=f"f{n}",
            subject=ends[0],
            predicate=f"p{n % 20}",
            object=ends[1],
            source_drawer_id=ids[n % len(ids)],
        )
        made.append(_control(WORKSPACE, fact, f"fact-{n}"))
    return made


@dataclass
class _Node:
    """Views, and what searches them."""

    store: ViewStore
    host: Host
    embedder: Embedder
    search: DrawerSearch
    published: list[OutgoingMessage] = field(default_factory=list)

    async def publish(self, fact: OutgoingMessage) -> Published:
        """Keep a fact until it is folded."""
        self.published.append(fact)
        return Published(0, False)

    async def fold(self) -> None:
        """Fold what was published."""
        await fold_all(self.host, self.published)
        self.published.clear()


@asynccontextmanager
async def _node(path: Path, embedder: Embedder, activated: OutgoingMessage) -> AsyncIterator[_Node]:
    store = ViewStore.open(path, memory_mb=Settings().duckdb_memory_mb)
    host = Host(store, discover_projections(), park=never_park)
    await host.open()
    await host.fold(raw([activated], 1))
    queries = QueryEmbedder(lambda _: embedder)
    cache = HotCache(store, Settings().hot_index_mb << 20)
    search = DrawerSearch(cache, Analyzer(Stemmer.Stemmer), queries, clock=lambda: datetime.now(UTC))
    try:
        yield _Node(store, host, embedder, search)
    finally:
        cache.close()
        queries.close()
        await host.close()
        store.close()


async def _speed(report: Report, node: _Node, texts: Sequence[str], corpus: Corpus, asked: int) -> None:
    shared = node_of(node.store)
    shared.put(DrawerSearch, node.search)
    reading, navigation = shared.use(PalaceReading), shared.use(Navigation)
    caller = Caller.of(OWNER, WORKSPACE)
    began = time.perf_counter()
    await node.search.search(WORKSPACE, "warm", 1)
    report.figure("loading the index", (time.perf_counter() - began) * MS, "ms")

    async def ask(query: str, **more: Any) -> float:
        began = time.perf_counter()
        found = await reading.search(caller, PalaceSearchRequest(query=query, limit=K, **more))
        if not found.results and "wing" not in more:
            raise RuntimeError("the search finds nothing")
        return time.perf_counter() - began

    queries = [f"{query} {_name(n)}" for n, query in enumerate(corpus.queries(asked, seed=6))]
    note = "words, vectors and graph; the query names an entity; vector given; the answer with its texts included"
    latencies(report, "search", [await ask(query) for query in queries], SEARCH_P50_MS, None, note)
    worked = time.thread_time()
    for query in queries:
        await ask(f"{query} again")
    report.figure("CPU of a search", (time.thread_time() - worked) / len(queries) * MS, "ms")
    latencies(
        report, "search by palace-seed", [await ask(query, recipe="palace-seed") for query in queries], None, None
    )
    latencies(report, "search of a wing", [await ask(query, wing="wing 3") for query in queries], None, None)

    async def wake() -> float:
        began = time.perf_counter()
        await reading.wake_up(caller, WakeUpRequest())
        return time.perf_counter() - began

    async def traverse(n: int) -> float:
        began = time.perf_counter()
        await navigation.traverse(caller, TraverseRequest(start_room=f"room {n % ROOMS}"))
        return time.perf_counter() - began

    latencies(report, "wake-up", [await wake() for _ in range(asked)], WAKE_UP_P50_MS, None)
    latencies(report, "traverse", [await traverse(n) for n in range(asked)], TRAVERSE_P50_MS, None)
    del texts


async def _hot_path(report: Report, node: _Node, texts: Sequence[str]) -> None:
    workspace = "talk"
    turns = [
        ExchangeTurn(n, f"t{n}", "s", USER_MESSAGE if n % 2 == 0 else AGENT_RESPONSE, "ada", text, "", 0, 0)
        for n, text in enumerate(texts)
    ]
    exchanges = [exchange for exchange in exchanges_of(turns, 1 << 50) if exchange.ended]
    filing = Filing(node.store, NearDrawers(node.search), node.publish, lambda _: node.embedder, THRESHOLDS, "bench@1")
    filed, work, folding, worked = 0, 0.0, 0.0, time.process_time()
    for at in range(0, len(exchanges), GROUP):
        began = time.perf_counter()
        counts = await filing.file(workspace, exchanges[at : at + GROUP])
        work += time.perf_counter() - began
        filed += counts["filed"]
        began = time.perf_counter()
        await node.fold()
        folding += time.perf_counter() - began
    note = f"{filed} drawers of {len(exchanges)} exchanges; folding included; alone {len(exchanges) / work:.0f}/s"
    note += f"; {(time.process_time() - worked) / len(exchanges) * MS:.1f} ms of CPU each; no broker, no embedding"
    report.figure("hot path", len(exchanges) / (work + folding), "exchanges/s", at_least(EXCHANGES_PER_S), note)


@dataclass(frozen=True)
class _Held:
    """A drawer's text."""

    content: str

    def holds(self, turn: str) -> bool:
        """Whether a turn is in it."""
        return turn[:HEAD_CHARS] in self.content


async def _locomo(report: Report, path: Path, folder: Path) -> None:
    records, questions = lines_of(path / "journal.jsonl"), lines_of(path / "queries.jsonl")
    install_minilm(Settings().models_dir)
    embedder = MiniLmEmbedder(Settings().models_dir)
    payload = EmbeddingsActivated(model=MODEL_ID, embedder="minilm", dim=DIM)
    async with _node(folder / "locomo.duckdb", embedder, _control(SYSTEM_WORKSPACE, payload, "activated")) as node:
        filing = Filing(node.store, NearDrawers(node.search), node.publish, lambda _: embedder, THRESHOLDS, "bench@1")
        drawers = 0
        for workspace in sorted({str(record["agent_id"]) for record in records}):
            found = _exchanges([record for record in records if record["agent_id"] == workspace])
            for at in range(0, len(found), GROUP):
                drawers += (await filing.file(workspace, found[at : at + GROUP]))["filed"]
                await node.fold()
        texts = {str(record["id"]): str(record["summary"]) for record in records}
        for recipe in PalaceRecipe:
            recalls: dict[int, list[float]] = {5: [], K: []}
            for question in questions:
                hits, _ = await node.search.search(question["agent_id"], question["query"], K, recipe=recipe)
                for depth, into in recalls.items():
                    held = [_Held(hit.content) for hit in hits[:depth]]
                    wanted = [texts[entry_id] for entry_id in question["relevant_ids"]]
                    into.append(sum(any(exchange.holds(text) for exchange in held) for text in wanted) / len(wanted))
            note = f"{drawers} drawers of {len(records)} turns; {len(questions)} questions; no model classifies"
            for depth, some in recalls.items():
                value = sum(some) / len(some)
                report.figure(f"{LOCOMO} as drawers: {recipe.value}", value, f"recall@{depth}", None, note)
    await embedder.close()


def _exchanges(records: Sequence[dict[str, Any]]) -> list[Exchange]:
    sessions: dict[str, list[ExchangeTurn]] = {}
    for seq, one in enumerate(records):
        turns = sessions.setdefault(str(one["trace_id"]), [])
        kind = AGENT_RESPONSE if len(turns) % 2 else USER_MESSAGE
        turns.append(ExchangeTurn(seq, str(one["id"]), str(one["trace_id"]), kind, "", str(one["summary"]), "", 0, 0))
    return [one for turns in sessions.values() for one in exchanges_of(turns, 1 << 50)]


async def run(quick: bool, folder: Path) -> Report:
    """Measure."""
    drawers, entities, facts, asked = (1_000, 500, 5_000, 50) if quick else (10_000, 5_000, 50_000, 400)
    sizes: dict[str, int | float] = {"drawers": drawers, "entities": entities, "facts": facts, "queries": asked}
    report = Report("palace", quick, sizes)
    corpus = Corpus(drawers, seed=2, prefix="d")
    texts = _texts(corpus)
    async with _node(folder / "views.duckdb", ReadyEmbedder(drawers), activation()) as node:
        say("palace: folding drawers and facts")
        node.published += _palace(texts, entities, facts)
        began = time.perf_counter()
        await node.fold()
        report.figure("folding the palace", (time.perf_counter() - began), "s")
        await _speed(report, node, texts, corpus, asked)
        say("palace: the hot path")
        said = _texts(Corpus(drawers // 2, seed=5, prefix="t"))
        await _hot_path(report, node, said)
    path = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    if quick or not path.is_dir():
        say(f"palace: {path} is left out")
    else:
        await _locomo(report, path, folder)
    return report
