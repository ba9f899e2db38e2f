"""Assembled contexts: how long one takes, and whether it holds the answer.

Latency: in process, 100,000 entries, 10,000 drawers, 5,000 facts, the query's vector given. Quality: ``locomo_dev`` with
MiniLM: recall@10 with and without salience on top, and how often 2,000 tokens of memory hold a turn that answers, against
recall's own first hits, rendered in the same way and of the same size.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import Stemmer

from bench.corpus import Corpus
from bench.figures import MS, Report, at_least, at_most, latencies, say
from bench.journals import DIM, MODEL, OWNER, entry_message, raw, vector_messages
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import lines_of, recorded
from bench.recall import ReadyEmbedder, fold_all, folded_views
from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, ensure_static_table, install_minilm
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.entry import JournalEntry
from crew_journal.schemas.events.derived import OutgoingMessage, encode_vector
from crew_journal.schemas.events.drawers import DrawerFiled
from crew_journal.schemas.events.embeddings import EmbeddingsActivated
from crew_journal.schemas.events.envelope import TokenBitsDerived, VectorDerived
from crew_journal.schemas.events.facts import FactAsserted, FactEntity
from crew_journal.schemas.events.payload import ControlPayload
from crew_journal.schemas.events.token_bits import encode_token_bits
from crew_journal.schemas.facts import entity_id
from crew_journal.schemas.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.operations.context import ContextRequest
from crew_journal.schemas.operations.recall import INJECT, RecallRequest
from crew_journal.schemas.rules.context.assembly import rendered
from crew_journal.schemas.rules.context.tokens import estimate
from crew_journal.schemas.rules.embed_text import embedded_text
from crew_journal.schemas.rules.text import Analyzer
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.timestamps import format_ts, to_ms
from crew_journal.services.desk import Caller
from crew_journal.services.layered.memories import Asked
from crew_journal.services.layered.use_cases import Layered
from crew_journal.services.memory.documents.owned import PromptDocuments
from crew_journal.services.memory.registry import Registry
from crew_journal.services.palace.searching import DrawerSearch
from crew_journal.services.palace.use_cases import Palace
from crew_journal.services.query.chunks.documents import no_record
from crew_journal.services.query.entries.queries import JournalQueries
from crew_journal.services.query.measures.evaluation import recall_at
from crew_journal.services.query.recall import RecallService

P50_MS: Final = 12.0
BUDGET: Final = 2_000
LOST_AT_MOST: Final = 0.01
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
        said = FactAsserted(
            fact_id=f"t_{n:08d}",
            subject=FactEntity(entity_id=entity_id(subject), name=subject),
            predicate=f"uses {n // 900}",
            object=FactEntity(entity_id=entity_id(value), name=value),
            text=str(corpus.submission(n % corpus.entries)["summary"])[:200],
            confidence=chance.random(),
        )
        yield _decision(said, f"fact-{n}", corpus.workspace(0))


def _layered(
    store: ViewStore, recall: RecallService, queries: JournalQueries, owned: PromptDocuments, now: datetime
) -> Layered:
    analyzer = Analyzer(Stemmer.Stemmer)
    unused: Any = SimpleNamespace()
    drawers = DrawerSearch(store, analyzer, recall.queries, budget_bytes=256 << 20, clock=lambda: now)
    palace = Palace.over(store, unused, drawers, no_record)
    registry = Registry(store)
    return Layered.over(
        store, unused, unused, palace, unused, owned, registry, queries, recall, analyzer, no_record, Settings(), lambda: now
    )  # fmt: skip


async def _latency(report: Report, folder: Path, quick: bool) -> None:
    entries, drawers, facts, asked = (10_000, 1_000, 500, 40) if quick else (100_000, 10_000, 5_000, 400)
    report.sizes |= {"entries": entries, "drawers": drawers, "facts": facts, "contexts": asked}
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
        layered = _layered(store, recall, queries, owned, datetime.now(UTC))
        caller = Caller.of(OWNER, corpus.workspace(0))

        async def build(query: str) -> float:
            request = ContextRequest(prompt=query, record=False, workspace_id=corpus.workspace(0))
            began = time.perf_counter()
            made = await layered.assembling.assemble(caller, request)
            took = time.perf_counter() - began
            if not made.items or made.tokens["total"] > made.tokens["budget"]:
                raise RuntimeError("the context is empty or too large")
            return took

        report.figure("the first context: indexes loaded", await build("the parser") * MS, "ms")
        for query in corpus.queries(20, seed=5):
            await build(query)
        spent = time.process_time()
        took = [await build(query) for query in corpus.queries(asked, seed=6)]
        report.figure("CPU of a context, all threads", (time.process_time() - spent) / asked * MS, "ms")
        latencies(report, "a context of 8,000 tokens, in process", took, P50_MS, None, "query vector given, no receipt")
        queries.close()
        for part in (owned, recall):
            part.close()


async def _locomo(report: Report, folder: Path, path: Path) -> None:
    cache = Settings().models_dir
    install_minilm(cache)
    ensure_static_table(cache)
    turns, asked = lines_of(path / "journal.jsonl"), lines_of(path / "queries.jsonl")
    events = recorded(turns, "locomo", 2)
    embedder = MiniLmEmbedder(cache)
    made = await embedder.embed_documents_tokens([embedded_text(e.entry.summary, e.entry.payload) for e in events])
    store = ViewStore.open(folder / "locomo.duckdb", memory_mb=Settings().duckdb_memory_mb)
    host = Host(store, discover_projections(), park=_never)
    await host.open()
    on = EmbeddingsActivated(model=MODEL_ID, embedder="minilm", dim=DIM, reason="bench")
    await host.fold(raw([_decision(on, "activation", SYSTEM_WORKSPACE)], 1))
    await fold_all(host, [entry_message(event.entry, f"{event.seq:032x}") for event in events])
    derived: list[OutgoingMessage] = []
    for event, (vector, tokens) in zip(events, made, strict=True):
        one = event.entry
        fact = VectorDerived(
            0, "locomo", one.id, event.seq, MODEL_ID, DIM, vector, f"{event.seq:032x}", one.entry_type, one.severity.value,
            one.priority.value, one.crew_id, one.agent_id, event.ts_ms, 0, "embed@1",
        )  # fmt: skip
        derived.append(encode_vector(fact, 1))
        if tokens is not None and tokens.bits:
            bits = TokenBitsDerived(
                0, "locomo", one.id, event.seq, MODEL_ID, tokens.quantiser, tokens.dim, tokens.bits, tokens.first_passage,
                0, "embed@1",
            )  # fmt: skip
            derived.append(encode_token_bits(bits, 1))
    await fold_all(host, derived)
    recall = RecallService(
        store,
        lambda _: embedder,
        analyzer=Analyzer(Stemmer.Stemmer),
        budget_bytes=Settings().hot_index_mb << 20,
        clock=lambda: datetime.now(UTC),
        embed_timeout_s=30.0,
    )
    queries, owned = JournalQueries(store), PromptDocuments(store)
    last = {
        agent: max(e.entry.ts for e in events if e.entry.agent_id == agent) for agent in {q["agent_id"] for q in asked}
    }
    for name, delay in (("an hour after the conversation", timedelta(hours=1)), ("a year after", timedelta(days=365))):
        await _quality(report, name, asked, last, delay, _layered(store, recall, queries, owned, _START), recall)
    queries.close()
    for part in (owned, recall):
        part.close()
    await host.close()
    store.close()
    await embedder.close()


async def _quality(
    report: Report,
    name: str,
    asked: Sequence[dict[str, Any]],
    last: dict[str, datetime],
    delay: timedelta,
    layered: Layered,
    recall: RecallService,
) -> None:
    plain: list[float] = []
    salient: list[float] = []
    holds: list[bool] = []
    first: list[bool] = []
    hidden = 0
    for question in asked:
        agent, relevant = question["agent_id"], frozenset(question["relevant_ids"])
        if not relevant:
            continue
        now = format_ts(last[agent] + delay)
        caller = Caller.of(OWNER, "locomo")
        request = ContextRequest(
            prompt=question["query"],
            agent_id=agent,
            now=now,
            record=False,
            workspace_id="locomo",
            budget_tokens=BUDGET,
            system_tokens=0,
        )
        context = await layered.assembling.assemble(caller, request)
        found = await recall.answer(
            OWNER,
            RecallRequest(
                query=question["query"], k=20, mode=INJECT, asked_at=now, agent_id=agent, workspace_id="locomo"
            ),
        )
        ids = [hit.entry_id for hit in found.response.hits]
        choices = await layered.choices.of("locomo")
        wanted = Asked(caller, request, question["query"], choices, to_ms(last[agent] + delay))
        items = (await layered.assembling.memories.gather(wanted)).items
        by_salience = [
            one.id for one in sorted((one for one in items if one.source == "entry"), key=lambda one: one.order)
        ]
        hidden += len(set(ids) - set(by_salience))
        plain.append(recall_at(ids, relevant, 10))
        salient.append(recall_at(by_salience, relevant, 10))
        of = {one.id: one for one in items}
        size, own = context.tokens["memory"], []
        for entry_id in ids:
            if estimate(rendered([of[one] for one in (*own, entry_id)])) > size:
                break
            own.append(entry_id)
        inside = {one.id for one in context.items}
        holds.append(bool(relevant & inside))
        first.append(bool(relevant & set(own)))
    report.baseline(f"{LOCOMO}, {name}: recall", float(np.mean(plain)), "recall@10", "mode inject, 20 hits")
    report.figure(f"{LOCOMO}, {name}: salience on top", float(np.mean(salient)), "recall@10")
    report.figure(
        f"{LOCOMO}, {name}: what salience costs", float(np.mean(plain) - np.mean(salient)), "recall@10",
        at_most(LOST_AT_MOST),
    )  # fmt: skip
    report.figure(f"{LOCOMO}, {name}: hits that salience hides", hidden, "hits", at_most(0))
    report.baseline(f"{LOCOMO}, {name}: recall's first hits of the same size", float(np.mean(first)), "hold an answer")
    report.figure(
        f"{LOCOMO}, {name}: context of {BUDGET:,} tokens", float(np.mean(holds)), "hold an answer",
        at_least(float(np.mean(first))),
    )  # fmt: skip


async def _never(parked: Any) -> None:
    raise RuntimeError(f"{parked.projection} parked {parked.message.seq}: {parked.reason}")


async def run(quick: bool, folder: Path) -> Report:
    """All of it; ``quick`` leaves the development conversations out."""
    report = Report("context", quick)
    await _latency(report, folder, quick)
    path = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    if quick:
        say("quick: the development conversations are left out")
    elif path.is_dir():
        await _locomo(report, folder, path)
    else:
        say(f"{path} is absent: the development conversations are left out")
    return report
