"""Search over chunks of memory documents: in process, while entries and documents are written.

The embedding call is excluded: the embedder's vectors are ready. Chunks and vectors are put into the tables as their folds
would write them, because folding 45 MB of documents is not what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import Stemmer

from bench.corpus import Corpus, random_units
from bench.figures import MB, MS, Report, latencies, percentile
from bench.journals import DIM, MODEL, never_park, raw, ready_made
from bench.recall import ReadyEmbedder, activation, moments_of
from bench.sql_baseline import numpy_cosine
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.folds.words import chunk_terms
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.envelope import DocumentWritten
from crew_journal.schemas.core.ids import hash64, name_key
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.table import Table
from crew_journal.schemas.core.texts import TextRow
from crew_journal.schemas.documents.events import encode_document
from crew_journal.schemas.documents.operations import DocumentSearchRequest
from crew_journal.schemas.documents.tables import CHUNK_TEXTS, CHUNK_VECTORS, DOCUMENTS
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.desk import Caller
from crew_journal.services.documents.search import DocumentSearch, document_indexes
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.query_embedding import QueryEmbedder

P50_MS: Final = 8.0
PER_DOCUMENT: Final = 50
"""Chunks of a document; 20 KB."""
OWNERS: Final = (*(f"a-agent-{n}" for n in range(8)), "c-crew-0", "c-crew-1")
SHARE_OF_CREWS: Final = 0.4
"""Of the chunks; two crews of 20,000 chunks have the 10 MB that a crew may have."""
WRITES_PER_S: Final = 500
WRITE_BATCH: Final = 25
APPEND_EVERY: Final = 2
"""Batches of entries between two appends to a daily log: ten a second."""
ASKED_PER_S: Final = 20.0
WORKSPACE: Final = "bench-00"


def _owner(document: int, documents: int) -> str:
    crews = int(documents * SHARE_OF_CREWS)
    return OWNERS[8 + document % 2] if document < crews else OWNERS[document % 8]


def _rows(corpus: Corpus, chunks: int) -> dict[Table[Any], dict[str, list[Any]]]:
    analyzer = Analyzer(Stemmer.Stemmer)
    vectors = random_units(chunks, DIM, 3)
    words = corpus.words
    documents: list[tuple[Any, ...]] = []
    pieces: list[tuple[Any, ...]] = []
    facts: list[tuple[Any, ...]] = []
    count = chunks // PER_DOCUMENT
    for document in range(count):
        owner, key = _owner(document, count), f"d{document}"
        row_key = name_key((WORKSPACE, owner, "topics", key))
        documents.append(
            (
                row_key,
                WORKSPACE,
                owner,
                "topics",
                key,
                "",
                "",
                20_000,
                None,
                0,
                False,
                1,
                1,
                1,
                0,
                document,
                "user",
                None,
            )
        )
        for number in range(PER_DOCUMENT):
            n = document * PER_DOCUMENT + number
            text = " ".join(words[rank] for rank in corpus.ranks(n).tolist())
            terms, counts = chunk_terms(analyzer, text)
            text_hash = hash64(text)
            line = 2 * number + 1
            pieces.append(
                TextRow(
                    row_key,
                    WORKSPACE,
                    owner,
                    key,
                    text,
                    text_hash,
                    terms,
                    counts,
                    "w_1",
                    0,
                    1,
                    "topics",
                    number,
                    line,
                    line,
                    "Notes",
                )
            )
            facts.append(
                (name_key((WORKSPACE, MODEL, str(n))), WORKSPACE, MODEL, text_hash, DIM, vectors[n].tobytes(), 0, 1)
            )
    return {
        table: dict(zip(table.row._fields, map(list, zip(*rows, strict=True)), strict=True))  # type: ignore[attr-defined] # a NamedTuple
        for table, rows in ((DOCUMENTS, documents), (CHUNK_TEXTS, pieces), (CHUNK_VECTORS, facts))
    }


def _fill(path: Path, corpus: Corpus, chunks: int) -> None:
    with duckdb.connect(str(path)) as con:
        for table, columns in _rows(corpus, chunks).items():
            unsigned = {column.name for column in table.columns if column.type == "UBIGINT"}
            arrow = pa.table(  # without a type, Arrow reads large numbers as floating point
                {
                    name: pa.array(np.array(values, np.uint64)) if name in unsigned else pa.array(values)
                    for name, values in columns.items()
                }
            )
            con.register("given", arrow)
            con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
            con.unregister("given")


@asynccontextmanager
async def _views(path: Path) -> AsyncIterator[tuple[ViewStore, Host]]:
    store = ViewStore.open(path, memory_mb=Settings().duckdb_memory_mb)
    host = Host(store, discover_projections(), park=never_park)
    await host.open()
    try:
        yield store, host
    finally:
        await host.close()
        store.close()


async def _write(host: Host, seconds: float) -> None:
    """Entries in batches, and appends to a daily log of an agent that is searched."""
    loop = asyncio.get_running_loop()
    corpus = Corpus(int(seconds * WRITES_PER_S), seed=8, prefix="w")
    batches = [ready_made(corpus, first, first + WRITE_BATCH) for first in range(0, corpus.entries, WRITE_BATCH)]
    began = loop.time()
    for number, batch in enumerate(batches):
        await asyncio.sleep(max(0.0, began + number * WRITE_BATCH / WRITES_PER_S - loop.time()))
        if number % APPEND_EVERY == 0:
            line = f"- {number} looked at the queue of checkout\n"
            append = DocumentWritten(
                0, WORKSPACE, OWNERS[0], "daily", "2026-11-22", "append", line, "api", f"n{number}", "agent", 0
            )
            batch = [*batch, encode_document(append)]
        await host.fold(raw(batch, host.checkpoint + 1))


async def _search(report: Report, store: ViewStore, host: Host, corpus: Corpus, query_count: int) -> None:
    embedder = ReadyEmbedder()
    queries = QueryEmbedder(lambda _: embedder)
    cache = HotCache(store, Settings().hot_index_mb << 20)

    async def memory_on(_workspace_id: str, _agent_id: str) -> bool:
        return True

    service = DocumentSearch(cache, queries, analyzer=Analyzer(Stemmer.Stemmer), memory_on=memory_on)
    lead = Principal(token_id="t", role=Role.LEAD, workspace_id=WORKSPACE, agent_id="agent-0", crew_id="crew-0")
    caller = Caller.of(lead)

    cpu: list[float] = []

    async def ask(query: str) -> float:
        began, worked = time.perf_counter(), time.thread_time()
        answer = await service.search(caller, DocumentSearchRequest(query=query, scope="both"))
        took = time.perf_counter() - began
        cpu.append(time.thread_time() - worked)
        if not answer.results or answer.model is None:
            raise RuntimeError("the search finds nothing, or no vectors")
        return took

    try:
        began = time.perf_counter()
        index = await document_indexes(cache).get(WORKSPACE)
        report.figure("loading the index", (time.perf_counter() - began) * MS, "ms")
        report.figure("memory of the index", cache.nbytes / MB, "MB")
        scope = index.scoped((OWNERS[0], "c-crew-0")).size
        report.sizes["chunks_in_scope"] = scope
        for query in corpus.queries(20, seed=5):
            await ask(query)
        dense = numpy_cosine(random_units(scope, DIM, 3), random_units(100, DIM, 4))
        report.baseline(f"cosine over {scope:,} vectors in numpy, best 100, p50", percentile(dense, 0.5) * MS, "ms")
        cpu.clear()
        latencies(
            report,
            "search of agent and crew, idle",
            [await ask(q) for q in corpus.queries(query_count, seed=6)],
            None,
            None,
        )
        report.figure("CPU of a search, idle, p50", percentile(cpu, 0.5) * MS, "ms")
        writing = asyncio.create_task(_write(host, query_count / ASKED_PER_S + 2))
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)  # so that batches are made before the first search
        start, busy = loop.time(), list[float]()
        for moment, query in zip(moments_of(query_count), corpus.queries(query_count, seed=7), strict=True):
            await asyncio.sleep(max(0.0, start + moment - loop.time()))
            busy.append(await ask(query))
        await writing
        latencies(report, f"search while {WRITES_PER_S}/s are written", busy, P50_MS, None, "and ten appends a second")
    finally:
        queries.close()
        cache.close()


async def run(quick: bool, folder: Path) -> Report:
    """Measure."""
    chunks, query_count = (10_000, 40) if quick else (100_000, 400)
    report = Report("chunks", quick, {"chunks": chunks, "vectors": chunks, "queries": query_count})
    corpus = Corpus(chunks, seed=2, prefix="k")
    path = folder / "views.duckdb"
    async with _views(path) as (_, host):
        await host.fold(raw([activation()], 1))
    await asyncio.to_thread(_fill, path, corpus, chunks)
    async with _views(path) as (store, host):
        await _search(report, store, host, corpus, query_count)
    return report
