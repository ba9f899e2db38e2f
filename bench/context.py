"""Assembled contexts: how long one takes, in process, with 100,000 entries, 10,000 drawers and 5,000 facts.

The query's vector is given. What contexts hold is measured by ``answers``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import Stemmer

from bench.corpus import Corpus
from bench.figures import MS, Report, latencies
from bench.journals import DIM, MODEL, OWNER, entry_message, vector_messages
from bench.one_node import node_of
from bench.recall import ReadyEmbedder, fold_all, folded_views
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.context.operations import ContextRequest
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.palace.events import DrawerFiled
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.use_cases import Assembling
from crew_journal.services.desk import Caller
from crew_journal.services.documents.owned import PromptDocuments, StoredPrompts
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.node import Node
from crew_journal.services.palace.searching import DrawerSearch
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.registry import Registry

P50_MS: Final = 12.0
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def _decision(payload: ControlPayload, name: str, workspace: str) -> OutgoingMessage:
    entry = JournalEntry(
        id=name,
        workspace_id=workspace,
        ts=_START,
        entry_type=payload.ENTRY_TYPE,
        summary=name,
        payload=payload.model_dump(mode="json"),
    )
    return entry_message(entry, "0" * 32, control=True)


def _drawers(corpus: Corpus, count: int) -> Iterator[OutgoingMessage]:
    for n in range(count):
        filed = DrawerFiled(
            drawer_id=f"drawer_w{n % 10}_r{n % 50}_{n:016x}",
            wing=f"w{n % 10}",
            room=f"r{n % 50}",
            content=" ".join(str(corpus.submission((n + 7 * part) % corpus.entries)["summary"]) for part in range(3))[
                :600
            ],
            memory_type="decision",
            importance=n % 6,
        )
        yield _decision(filed, f"drawer-{n}", corpus.workspace(0))


def _facts(corpus: Corpus, count: int) -> Iterator[OutgoingMessage]:
    chance = random.Random(4)
    words = corpus.words
    for n in range(count):
        subject, value = f"service {n % 900}", f"{chance.choice(words)} {n % 2_000}"
        payload = FactAsserted(
            fact_id=f"t_{n:08d}",
            subject=FactEntity(entity_id=entity_id(subject), name=subject),
            predicate=f"uses {n // 900}",
            object=FactEntity(entity_id=entity_id(value), name=value),
            text=str(corpus.submission(n % corpus.entries)["summary"])[:200],
            confidence=chance.random(),
        )
        yield _decision(payload, f"fact-{n}", corpus.workspace(0))


def layered_over(
    store: ViewStore,
    recall: RecallService,
    queries: JournalQueries,
    owned: PromptDocuments,
    now: Callable[[], datetime],
) -> Node:
    """The node of a store that nothing is written to, for layered memory."""
    analyzer = Analyzer(Stemmer.Stemmer)
    drawers = DrawerSearch(recall.cache, analyzer, recall.queries, clock=now)
    node = node_of(store, queries=queries, recall=recall, analyzer=analyzer, clock=now)
    node.put(DrawerSearch, drawers)
    node.put(Registry, Registry(store))
    node.put(StoredPrompts, cast("StoredPrompts", owned))
    return node


async def _latency(report: Report, folder: Path, quick: bool) -> None:
    entries, drawers, facts, query_count = (10_000, 1_000, 500, 40) if quick else (100_000, 10_000, 5_000, 400)
    report.sizes |= {"entries": entries, "drawers": drawers, "facts": facts, "contexts": query_count}
    corpus = Corpus(entries)
    async with folded_views(folder / "views.duckdb", corpus) as (store, host, seqs):
        chosen = {n: seq for n, seq in list(seqs.items())[: entries // 5] if corpus.is_embedded(n)}
        await fold_all(host, list(vector_messages(corpus, chosen, MODEL, DIM)))
        await fold_all(host, list(_drawers(corpus, drawers)))
        await fold_all(host, list(_facts(corpus, facts)))
        embedder = ReadyEmbedder()
        recall = RecallService(
            store,
            lambda _: embedder,
            analyzer=Analyzer(Stemmer.Stemmer),
            budget_bytes=Settings().hot_index_mb << 20,
            clock=lambda: datetime.now(UTC),
        )
        queries, owned = JournalQueries(store), PromptDocuments(store)
        assembling = layered_over(store, recall, queries, owned, lambda: datetime.now(UTC)).use(Assembling)
        caller = Caller.of(OWNER, corpus.workspace(0))

        async def build(query: str) -> float:
            request = ContextRequest(prompt=query, record=False, workspace_id=corpus.workspace(0))
            began = time.perf_counter()
            context = await assembling.assemble(caller, request)
            took = time.perf_counter() - began
            if not context.items or context.tokens["total"] > context.tokens["budget"]:
                raise RuntimeError("the context is empty or too large")
            return took

        report.figure("the first context: indexes loaded", await build("the parser") * MS, "ms")
        for query in corpus.queries(20, seed=5):
            await build(query)
        spent = time.process_time()
        took = [await build(query) for query in corpus.queries(query_count, seed=6)]
        report.figure("CPU of a context, all threads", (time.process_time() - spent) / query_count * MS, "ms")
        latencies(report, "a context of 8,000 tokens, in process", took, P50_MS, None, "query vector given, no receipt")
        queries.close()
        for part in (owned, recall):
            part.close()


async def run(quick: bool, folder: Path) -> Report:
    """The latency; what contexts hold is measured by ``answers``."""
    report = Report("context", quick)
    await _latency(report, folder, quick)
    return report
