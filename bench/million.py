"""One large workspace: a million entries, 200,000 of them with vectors; recall in process at rest, the embedding excluded.

CPU time is that of the thread that answers; the wall time of a loaded machine says little.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

import psutil
import Stemmer

from bench.corpus import Corpus
from bench.figures import MB, MIB, MS, Report, at_most, percentile, say
from bench.journals import DIM, MODEL, OWNER, vector_messages
from bench.recall import LOAD_BATCH, K, ReadyEmbedder, fold_all, folded_views
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.recall.recipes import LEXICAL, ROBUST

P50_MS: Final = 12.0
RECIPES: Final = (ROBUST.name, LEXICAL.name)


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    entries, vectors, query_count = (50_000, 10_000, 60) if quick else (1_000_000, 200_000, 300)
    report = Report("million", quick, {"entries": entries, "vectors": vectors, "queries": query_count})
    corpus = Corpus(entries)
    say(f"million: folding {entries:,} entries")
    began = time.perf_counter()
    async with folded_views(folder / "views.duckdb", corpus) as (store, host, seqs):
        chosen = list(islice(((n, seq) for n, seq in seqs.items() if corpus.is_embedded(n)), vectors))
        for first in range(0, len(chosen), LOAD_BATCH):  # a vector at a time in memory is 1.5 KB
            await fold_all(host, list(vector_messages(corpus, dict(chosen[first : first + LOAD_BATCH]), MODEL, DIM)))
        report.figure("folding, in process", time.perf_counter() - began, "s")
        embedder = ReadyEmbedder()
        service = RecallService(
            store,
            lambda _: embedder,
            analyzer=Analyzer(Stemmer.Stemmer),
            budget_bytes=Settings().hot_index_mb << 20,
            clock=lambda: datetime.now(UTC),
        )
        say("million: loading")
        before = psutil.Process().memory_info().rss
        began, cpu = time.perf_counter(), time.process_time()
        await service.indexes.get(corpus.workspace(0))
        report.figure("loading the hot index", time.perf_counter() - began, "s")
        report.figure("loading the hot index, CPU", time.process_time() - cpu, "s")
        report.figure("hot index", service.figures()["bytes"] / MIB, "MiB")
        report.figure("resident memory added by loading", (psutil.Process().memory_info().rss - before) / MB, "MB")
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in RECIPES}
        say("million: asking")
        for number, query in enumerate(corpus.queries(query_count + 20, seed=6)):
            for name in RECIPES:
                request = RecallRequest(query=query, k=K, workspace_id=corpus.workspace(0), recipe=name)
                wall, busy = time.perf_counter(), time.thread_time()
                answer = await service.recall(OWNER, request)
                if number >= 20:  # the first ones warm up
                    took[name].append((time.perf_counter() - wall, time.thread_time() - busy))
                if answer.degraded is not None or not answer.hits:
                    raise RuntimeError(f"recall is degraded ({answer.degraded}) or finds nothing")
        service.close()
    for name, times in took.items():
        walls, cpus = [wall for wall, _ in times], [busy for _, busy in times]
        bound = at_most(P50_MS) if name == ROBUST.name else None
        report.figure(f"{name}, p50", percentile(walls, 0.5) * MS, "ms", bound)
        report.figure(f"{name}, p99", percentile(walls, 0.99) * MS, "ms")
        report.figure(f"{name}, CPU p50", percentile(cpus, 0.5) * MS, "ms")
        report.figure(f"{name}, CPU p99", percentile(cpus, 0.99) * MS, "ms")
    return report
