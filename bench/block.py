"""The memory block of a prompt, in process, from 200 KB of documents, while entries are folded and documents written.

Baseline: reading the same documents from DuckDB, which the cache of documents saves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import Stemmer

from bench.corpus import Corpus
from bench.figures import MS, Report, latencies, percentile
from bench.journals import raw, ready_made
from bench.recall import ASKED_PER_S, ReadyEmbedder, folded_views, moments_of
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.context.operations import MemoryBlockRequest
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.envelope import DocumentWritten
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.documents.events import encode_document
from crew_journal.schemas.documents.tables import DOCUMENTS
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.block import MemoryBlocks
from crew_journal.services.desk import Caller
from crew_journal.services.documents.learned import Opener
from crew_journal.services.documents.owned import PromptDocuments
from crew_journal.services.documents.search import DocumentSearch
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.registry import Registry

WRITES_PER_S: Final = 500
WRITE_BATCH: Final = 25
"""Entries of a batch every 50 ms; each batch also has one line of a daily log."""
P99_MS: Final = 20.0
_DOCUMENTS: Final = (
    ("a-ada", "AGENT", None, 4_000),
    ("a-ada", "pins", None, 8_000),
    ("c-core", "CREW", None, 4_000),
    ("w", "WORKSPACE", None, 4_000),
    *(("c-core", "topics", f"topic-{number}", 40_000) for number in range(3)),
)
DAILY_BYTES: Final = 15_000
DAILY_DAYS: Final = 4


def _text(corpus: Corpus, first: int, size: int) -> str:
    """A list of ``size`` characters."""
    lines, length = [], 0
    while length < size:
        lines.append(f"- {corpus.submission(first % corpus.entries)['summary']}\n")
        length += len(lines[-1])
        first += 1
    return "".join(lines)[:size]


def _write(workspace: str, number: int, owner: str, tier: str, key: str | None, text: str) -> OutgoingMessage:
    action = "replace" if tier != "daily" else "append"
    return encode_document(
        DocumentWritten(0, workspace, owner, tier, key, action, text, "api", f"w{number}", "agent", 0, actor_id="ada")
    )


def _documents(corpus: Corpus, today: datetime) -> list[OutgoingMessage]:
    """About 200 KB of documents of an agent, its crew and the workspace."""
    workspace = corpus.workspace(0)
    days = [(today - timedelta(days=days)).date().isoformat() for days in range(1, DAILY_DAYS + 1)]
    wanted = [*_DOCUMENTS, *(("a-ada", "daily", day, DAILY_BYTES) for day in days)]
    return [
        _write(workspace, number, owner, tier, key, _text(corpus, 100 * number, size))
        for number, (owner, tier, key, size) in enumerate(wanted)
    ]


def _batches(corpus: Corpus, today: datetime, entries: int) -> Iterator[list[OutgoingMessage]]:
    more = Corpus(entries, seed=8, prefix="w")
    day = today.date().isoformat()
    for first in range(0, entries, WRITE_BATCH):
        line = _write(corpus.workspace(0), 1_000 + first, "a-ada", "daily", day, f"- note {first}\n")
        yield [*ready_made(more, first, first + WRITE_BATCH), line]


async def _write_into(host: Host, batches: Sequence[Sequence[OutgoingMessage]]) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    began, written = loop.time(), 0
    with contextlib.suppress(asyncio.CancelledError):
        for number, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, began + number * WRITE_BATCH / WRITES_PER_S - loop.time()))
            await host.fold(raw(batch, host.checkpoint + 1))
            written += len(batch) - 1
    return written, loop.time() - began


def _read_all(store: ViewStore, workspace: str) -> float:
    began = time.perf_counter()
    store.rows(f"SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE workspace_id = ?", [workspace])
    return time.perf_counter() - began


async def run(quick: bool, folder: Path) -> Report:
    """Measure."""
    entries, query_count = (10_000, 60) if quick else (100_000, 600)
    report = Report("block", quick, {"entries": entries, "blocks": query_count})
    corpus = Corpus(entries)
    today = datetime.now(UTC)
    documents = _documents(corpus, today)
    async with folded_views(folder / "views.duckdb", corpus) as (store, host, _):
        await host.fold(raw(documents, host.checkpoint + 1))
        workspace = corpus.workspace(0)
        [(size,)] = store.rows(f"SELECT sum(bytes) FROM {DOCUMENTS} WHERE workspace_id = ?", [workspace])
        report.sizes["document bytes"] = int(size)
        embedder = ReadyEmbedder()
        analyzer = Analyzer(Stemmer.Stemmer)
        budget = Settings().hot_index_mb << 20
        recall = RecallService(
            store, lambda _: embedder, analyzer=analyzer, budget_bytes=budget, clock=lambda: datetime.now(UTC)
        )
        registry, kept = Registry(store), PromptDocuments(store)
        search = DocumentSearch(recall.cache, recall.queries, analyzer=analyzer, memory_on=_is_on)
        unknown = lambda _caller, user, _agent, _session: Opener(user, user)  # noqa: E731
        blocks = MemoryBlocks(store, registry, kept, search, unknown, clock=lambda: datetime.now(UTC))
        principal = Principal(token_id="t", role=Role.AGENT, workspace_id=workspace, agent_id="ada", crew_id="core")
        caller = Caller.of(principal)

        async def build(query: str | None) -> float:
            began = time.perf_counter()
            block = await blocks.build(caller, MemoryBlockRequest(query=query))
            took = time.perf_counter() - began
            if block.usage["total"] < block.usage["budget"] - 100:
                raise RuntimeError(f"the block is not full: {block.usage}")
            return took

        read = [await asyncio.to_thread(_read_all, store, workspace) for _ in range(20)]
        report.baseline("reading these documents from DuckDB, idle, p50", percentile(read, 0.5) * MS, "ms")
        report.figure("the first block: documents read", await build(None) * MS, "ms")
        report.figure("the first block with a query: chunks read", await build("the parser") * MS, "ms")
        queries = corpus.queries(query_count, seed=7)
        for name, wanted in (("idle", [None] * query_count), ("idle, with a query that ranks topics", queries)):
            began = time.thread_time()
            latencies(report, name, [await build(query) for query in wanted], None, None)
            report.figure(f"{name}, CPU of the event loop", (time.thread_time() - began) / query_count * MS, "ms")
        seconds = 2 * query_count / ASKED_PER_S
        batches = list(_batches(corpus, today, int(seconds * WRITES_PER_S) + 1_000))
        writing = asyncio.create_task(_write_into(host, batches))
        plain: list[float] = []
        ranked: list[float] = []
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number, moment in enumerate(moments_of(2 * query_count)):
            await asyncio.sleep(max(0.0, start + moment - loop.time()))
            into, query = (ranked, queries[number // 2]) if number % 2 else (plain, None)
            into.append(await build(query))
        writing.cancel()
        written, took = await writing
        report.figure("entries written beside it", written / took, "entries/s")
        note = (
            "a line of today's log is written with every 25 entries; folds in the same process, no broker and no HTTP"
        )
        latencies(report, "500 entries/s written", plain, None, P99_MS, note)
        latencies(report, "500 entries/s written, with a query that ranks topics", ranked, None, P99_MS, note)
        for part in (blocks, kept, registry, recall):
            part.close()
    return report


async def _is_on(_workspace_id: str, _agent_id: str) -> bool | None:
    return True
