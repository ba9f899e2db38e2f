"""What a small commit costs: folded into all views and followed by the hot index, in this process without a broker.

CPU of all threads, fold and follow together; and of the event loop's thread, following alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from bench.corpus import Corpus
from bench.figures import MS, Report, median
from bench.journals import DIM, MODEL, raw, ready_made, vector_messages
from bench.recall import fold_all, folded_views
from crew_journal.consumers.host.host import Host
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.ports import CommittedBatch
from crew_journal.schemas.settings import Settings
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.entry_slot import EntryIndexes

WARM: Final = 20
"""Commits before those that count."""


class _TimedCache(HotCache):
    """A cache that records the CPU seconds of following each commit."""

    took: list[float]

    def _follow(self, batch: CommittedBatch) -> None:
        began = time.thread_time()
        super()._follow(batch)
        self.took.append(time.thread_time() - began)


async def _commits(
    report: Report, name: str, host: Host, cache: _TimedCache, parts: Sequence[Sequence[OutgoingMessage]]
) -> None:
    times: list[float] = []
    cache.took = []
    for part in parts:
        messages = raw(part, host.checkpoint + 1)
        began = time.process_time()
        await host.fold(messages)
        times.append(time.process_time() - began)
    report.figure(f"{name}, fold and follow, CPU p50", median(times[WARM:]) * MS, "ms")
    report.figure(f"{name}, follow, CPU p50", median(cache.took[WARM:]) * MS, "ms")


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    report = Report("follow", quick)
    commits, entries, vectors = (150, 5_000, 200) if quick else (400, 10_000, 500)
    report.sizes = {"entries": entries, "vectors": vectors, "commits": commits}
    corpus = Corpus(entries, seed=1, prefix="f")
    async with folded_views(folder / "views.duckdb", corpus) as (store, host, seqs):
        chosen = dict(islice(((n, seq) for n, seq in seqs.items() if corpus.is_embedded(n)), vectors + commits))
        facts = list(vector_messages(corpus, chosen, MODEL, DIM))
        await fold_all(host, facts[:vectors])
        cache = _TimedCache(store, Settings().hot_index_mb << 20)
        try:
            await EntryIndexes(cache).get(corpus.workspace(0))
            for size in (1, 20):
                more = Corpus(commits * size, seed=2, prefix=f"g{size}")
                events = ready_made(more, 0, more.entries)
                parts = [events[first : first + size] for first in range(0, len(events), size)]
                await _commits(report, f"commits of {size} entries", host, cache, parts)
            await _commits(report, "commits of 1 vector", host, cache, [[fact] for fact in facts[vectors:]])
        finally:
            cache.close()
    return report
