"""Recall: in process and over HTTP while 1,000 entries a second are written, and over many workspaces at rest.

The embedding call is excluded: in process by a fake embedder whose vectors are ready; over HTTP by queries whose vectors
the service remembers. Every second query over HTTP is a new one, embedded by a call to a stand-in that computes nothing
(``standin``); those are shown apart, our side of the call included. Answers are never cached.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
import Stemmer
from support.processes import Stack

from bench.corpus import Corpus, random_units
from bench.figures import MB, MS, Report, at_most, latencies, percentile, say
from bench.journals import DIM, MODEL, OWNER, entry_message, never_park, prepare, raw, ready_made, vector_messages
from bench.sql_baseline import numpy_cosine, sql_bm25
from bench.standin import stand_in
from bench.watching import async_client_of, client_of, memory_of, wait_folded, wait_idle
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.recall.recall import RecallService

WRITES_PER_S: Final = 1_000
WRITE_BATCH: Final = 50
ASKED_PER_S: Final = 20.0
"""Recalls a second beside the writing, at moments of chance: an agent or two at work, not a load test of recall."""
IN_PROCESS_P50_MS: Final = 4.0
IN_PROCESS_P99_MS: Final = 25.0
HTTP_P50_MS: Final = 10.0
HTTP_P99_MS: Final = 50.0
COLD_MS: Final = 500.0
LOAD_BATCH: Final = 5_000
K: Final = 10


class ReadyEmbedder:
    """An embedder whose vectors cost nothing: a random direction for each text in turn, ``vectors`` of them."""

    model_id: Final = MODEL
    dim: Final = DIM

    def __init__(self, vectors: int = 997) -> None:
        self._vectors = [unit.tobytes() for unit in random_units(vectors, DIM, 9)]
        self._asked = 0

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text."""
        return [await self.embed_query(text) for text in texts]

    async def embed_query(self, text: str) -> bytes:
        """The next vector."""
        self._asked += 1
        return self._vectors[self._asked % len(self._vectors)]

    async def probe(self) -> None:
        """It works."""

    async def close(self) -> None:
        """Nothing to give back."""


def activation() -> OutgoingMessage:
    payload = EmbeddingsActivated(model=MODEL, embedder="ollama", dim=DIM, reason="bench")
    entry = JournalEntry(
        id="bench-activation",
        workspace_id=SYSTEM_WORKSPACE,
        ts=datetime(2026, 1, 1, tzinfo=UTC),
        entry_type=EmbeddingsActivated.ENTRY_TYPE,
        summary="the bench's vectors are active",
        payload=payload.model_dump(mode="json"),
    )
    return entry_message(entry, "0" * 32, control=True)


@asynccontextmanager
async def folded_views(path: Path, corpus: Corpus) -> AsyncIterator[tuple[ViewStore, Host, dict[int, int]]]:
    """Views of the corpus's entries, folded in this process without a broker; and entry number → sequence."""
    store = ViewStore.open(path, memory_mb=Settings().duckdb_memory_mb)
    host = Host(store, discover_projections(), park=never_park)
    await host.open()
    await host.fold(raw([activation()], 1))
    seqs: dict[int, int] = {}
    for first in range(0, corpus.entries, LOAD_BATCH):
        last = min(corpus.entries, first + LOAD_BATCH)
        seq = host.checkpoint + 1
        await host.fold(raw(ready_made(corpus, first, last), seq))
        seqs |= {n: seq + n - first for n in range(first, last)}
    try:
        yield store, host, seqs
    finally:
        await host.close()
        store.close()


@asynccontextmanager
async def _views(path: Path, corpus: Corpus, vectors: int) -> AsyncIterator[tuple[ViewStore, Host]]:
    """Views of the corpus and of vectors of its first embeddable entries."""
    async with folded_views(path, corpus) as (store, host, seqs):
        chosen = dict(islice(((n, seq) for n, seq in seqs.items() if corpus.is_embedded(n)), vectors))
        await fold_all(host, list(vector_messages(corpus, chosen, MODEL, DIM)))
        yield store, host


async def fold_all(host: Host, messages: Sequence[OutgoingMessage]) -> None:
    """Fold messages in batches behind what was folded."""
    for first in range(0, len(messages), LOAD_BATCH):
        await host.fold(raw(messages[first : first + LOAD_BATCH], host.checkpoint + 1))


async def _write_into(host: Host, batches: Sequence[Sequence[OutgoingMessage]]) -> tuple[int, float]:
    """Fold a batch every 50 ms; returns entries written and seconds it took."""
    loop = asyncio.get_running_loop()
    began, written = loop.time(), 0
    with contextlib.suppress(asyncio.CancelledError):
        for number, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, began + number * WRITE_BATCH / WRITES_PER_S - loop.time()))
            await host.fold(raw(batch, host.checkpoint + 1))
            written += len(batch)
    return written, loop.time() - began


def moments_of(query_count: int) -> list[float]:
    """When each query is asked, seconds from the start: anywhere in its part of a second.

    Batches are written at the same pace, so queries asked at even intervals would meet all of them at the same point.
    """
    chance = random.Random(10)
    return [(number + chance.random()) / ASKED_PER_S for number in range(query_count)]


def _batches(entries: int, prefix: str) -> list[list[OutgoingMessage]]:
    more = Corpus(entries, seed=8, prefix=prefix)
    return [ready_made(more, first, first + WRITE_BATCH) for first in range(0, entries, WRITE_BATCH)]


async def _in_process(report: Report, folder: Path, corpus: Corpus, vectors: int, query_count: int) -> None:
    async with _views(folder / "views.duckdb", corpus, vectors) as (store, host):
        analyzer = Analyzer(Stemmer.Stemmer)
        sql_queries = corpus.queries(min(query_count, 100), seed=5)
        sql = await asyncio.to_thread(sql_bm25, store, analyzer, corpus.workspace(0), sql_queries)
        report.baseline("BM25 as SQL over the postings in DuckDB, best 100, idle, p50", percentile(sql, 0.5) * MS, "ms")
        matrix = random_units(vectors, DIM, 3)
        dense = numpy_cosine(matrix, random_units(100, DIM, 4))
        report.baseline(f"cosine over {vectors:,} vectors in numpy, best 100, p50", percentile(dense, 0.5) * MS, "ms")

        embedder = ReadyEmbedder()
        service = RecallService(
            store,
            lambda _: embedder,
            analyzer=Analyzer(Stemmer.Stemmer),
            budget_bytes=Settings().hot_index_mb << 20,
            clock=lambda: datetime.now(UTC),
        )

        async def ask(query: str) -> float:
            request = RecallRequest(query=query, k=K, workspace_id=corpus.workspace(0))
            began = time.perf_counter()
            answer = await service.recall(OWNER, request)
            took = time.perf_counter() - began
            if answer.degraded is not None or not answer.hits:
                raise RuntimeError(f"recall is degraded ({answer.degraded}) or finds nothing")
            return took

        began = time.perf_counter()
        await service.indexes.get(corpus.workspace(0))
        report.figure("loading the hot index, in process", (time.perf_counter() - began) * MS, "ms")
        queries = corpus.queries(query_count, seed=6)
        for query in queries[:20]:
            await ask(query)
        idle = [await ask(query) for query in queries]
        latencies(report, "in process, idle", idle, None, None)
        writing = asyncio.create_task(
            _write_into(host, _batches(int(query_count / ASKED_PER_S * WRITES_PER_S) + 1_000, "w"))
        )
        busy = []
        loop = asyncio.get_running_loop()
        start = loop.time()
        for moment, query in zip(moments_of(query_count), corpus.queries(query_count, seed=7), strict=True):
            await asyncio.sleep(max(0.0, start + moment - loop.time()))
            busy.append(await ask(query))
        writing.cancel()
        written, seconds = await writing
        report.figure("in process, entries written beside it", written / seconds, "entries/s")
        note = "embedding excluded; folds in the same process without broker and HTTP"
        latencies(report, "in process, 1,000 entries/s written", busy, IN_PROCESS_P50_MS, IN_PROCESS_P99_MS, note)
        service.close()


@contextlib.contextmanager
def _writer_process(stack: Stack, seconds: float) -> Iterator[None]:
    """1,000 entries a second over HTTP from a process of its own."""
    arguments = [sys.executable, "-m", "bench.load", stack.url, str(WRITES_PER_S), str(seconds)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(stack.token + "\n")
        process.stdin.flush()
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


async def _ask_http(client: httpx.AsyncClient, workspace: str, query: str, *, degraded: bool = False) -> float:
    began = time.perf_counter()
    answer = await client.post("/v1/recall", json={"query": query, "k": K, "workspace_id": workspace})
    took = time.perf_counter() - began
    answer.raise_for_status()
    body = answer.json()
    if not body["hits"] or (body["degraded"] is not None and not degraded):
        raise RuntimeError(f"recall is degraded ({body['degraded']}) or finds nothing")
    return took


async def _http(report: Report, folder: Path, corpus: Corpus, query_count: int) -> None:
    await prepare(folder, corpus, 0)
    with stand_in(DIM) as ollama:
        options = ("--embedder", "ollama", "--durability", "interval")
        with Stack(folder, options, {"OLLAMA_HOST": ollama}) as stack:
            await asyncio.to_thread(stack.up)
            await asyncio.to_thread(_wait_vectors, stack, corpus)
            await asyncio.to_thread(wait_idle, stack)  # the link reactor has compared every vector with the others
            async with async_client_of(stack) as client:
                queries = corpus.queries(query_count, seed=6)
                for query in queries[:20]:
                    await _ask_http(client, corpus.workspace(0), query)
                idle = [await _ask_http(client, corpus.workspace(0), query) for query in queries]
                latencies(report, "HTTP, idle, one workspace", idle, None, None)
                before = await _entries(client)
                began = time.perf_counter()
                with _writer_process(stack, query_count / ASKED_PER_S + 30):
                    await asyncio.to_thread(_wait_more, stack, before + 2 * WRITES_PER_S)
                    began, before = time.perf_counter(), await _entries(client)
                    half = query_count // 2
                    turns = zip(queries[-half:], corpus.queries(half, seed=7), strict=True)
                    known: list[float] = []
                    fresh: list[float] = []
                    moments = moments_of(2 * half)
                    for number, query in enumerate(query for turn in turns for query in turn):
                        await asyncio.sleep(max(0.0, began + moments[number] - time.perf_counter()))
                        took = await _ask_http(client, corpus.workspace(0), query)
                        (fresh if number % 2 else known).append(took)
                    rate = (await _entries(client) - before) / (time.perf_counter() - began)
                memory = memory_of(stack)
    report.figure("HTTP, entries written and folded beside it", rate, "entries/s")
    note = "without the embedding call: the query's vector is remembered; writer and client share the cores"
    latencies(report, "HTTP, 1,000 entries/s written", known, HTTP_P50_MS, HTTP_P99_MS, note)
    note = "the query's embedding is a call to a stand-in that computes nothing; its HTTP is included"
    latencies(report, "HTTP, 1,000 entries/s written, query embedded", fresh, None, None, note)
    report.figure("memory of the stack then", memory.rss / MB, "MB RSS", None, memory.described)


async def _entries(client: httpx.AsyncClient) -> int:
    answer = await client.get("/v1/status")
    answer.raise_for_status()
    return int(answer.json()["entries"]["count"])


def _wait_vectors(stack: Stack, corpus: Corpus) -> None:
    """Until the embed reactor has made every vector: the stand-in is fast."""
    wanted = sum(corpus.is_embedded(n) for n in range(corpus.entries))
    _wait_status(stack, lambda status: int(status["embeddings"]["count"]) >= wanted, f"{wanted} vectors")


def _wait_more(stack: Stack, entries: int) -> None:
    _wait_status(stack, lambda status: int(status["entries"]["count"]) >= entries, f"{entries} entries")


def _wait_status(
    stack: Stack, enough: Callable[[dict[str, Any]], bool], awaited: str, deadline_s: float = 300.0
) -> None:
    until = time.monotonic() + deadline_s
    with client_of(stack) as client:
        while time.monotonic() < until:
            if enough(client.get("/v1/status").raise_for_status().json()):
                return
            time.sleep(0.2)
    raise TimeoutError(f"{awaited} were not there after {deadline_s:g} s")


async def _many_workspaces(report: Report, folder: Path, corpus: Corpus, query_count: int) -> None:
    filled = await prepare(folder, corpus, 0)
    defaults = Settings()
    budget = defaults.hot_index_mb + defaults.duckdb_memory_mb
    with Stack(folder, ("--embedder", "none", "--durability", "interval")) as stack:
        began = time.monotonic()
        await asyncio.to_thread(stack.start)
        await asyncio.to_thread(stack.wait_ready, 1_200.0)
        await asyncio.to_thread(wait_folded, stack, filled.last_seq)
        report.figure(f"{corpus.entries:,} entries from the stream to ready", time.monotonic() - began, "s")
        await asyncio.to_thread(stack.terminate)
        await asyncio.to_thread(stack.up)
        await asyncio.to_thread(wait_idle, stack)
        memory = memory_of(stack)
        report.figure("memory before any query", memory.rss / MB, "MB RSS", None, memory.described)
        # each query is asked in the workspace it was taken from, so that it has something to find
        queries = corpus.queries(query_count, seed=6)
        async with async_client_of(stack) as client:
            cold = [
                await _ask_http(client, f"bench-{number:02d}", queries[number % len(queries)], degraded=True)
                for number in range(corpus.workspaces)
            ]
            warm = [await _ask_http(client, "bench-00", query, degraded=True) for query in queries]
        memory = memory_of(stack)
    name = f"{corpus.entries:,} entries in {corpus.workspaces} workspaces, HTTP"
    latencies(report, f"{name}, warm", warm, HTTP_P50_MS, None, "lexical arm only: no embedder")
    report.figure(f"{name}, first query of a cold workspace, p50", percentile(cold, 0.5) * MS, "ms")
    report.figure(f"{name}, first query of a cold workspace, worst", max(cold) * MS, "ms", at_most(COLD_MS))
    report.figure(
        f"{name}, memory after all were asked",
        memory.rss / MB,
        "MB RSS",
        None,
        f"budget: hot indexes {defaults.hot_index_mb} + DuckDB {defaults.duckdb_memory_mb} = {budget} MiB, beside "
        f"libraries and broker; {memory.described}",
    )


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    entries, vectors, query_count, many, workspaces = (
        (10_000, 1_000, 60, 20_000, 10) if quick else (100_000, 10_000, 1_000, 1_000_000, 50)
    )
    sizes = {"entries": entries, "vectors": vectors, "queries": query_count, "many": many, "workspaces": workspaces}
    report = Report("recall", quick, dict(sizes))
    say("recall: in process")
    await _in_process(report, folder / "in-process", Corpus(entries), vectors, query_count)
    say("recall: over HTTP")
    await _http(report, folder / "http", Corpus(entries), query_count)
    say("recall: many workspaces")
    await _many_workspaces(report, folder / "many", Corpus(many, workspaces), query_count)
    return report
