"""Rebuilding every view from the stream, against a raw pull of the same stream that decodes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from nats.aio.client import Client

from bench.corpus import Corpus
from bench.figures import MIB, Report, at_least, median
from bench.journals import fill, never_park, open_broker
from bench.raw_nats import pull_all
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.consumers.host.bulk import fold_range
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.rebuild import rebuild
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.settings import REPLAY_BATCH_MESSAGES
from crew_journal.services.journal.broker.connection import connect

TARGET: Final = 12_000
MEMORY_MB: Final = 512
DRAIN: Final = 3
"""Raw pulls; the median counts."""


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    entries, vectors, rounds = (10_000, 1_000, 1) if quick else (100_000, 10_000, 3)
    report = Report("replay", quick, {"entries": entries, "vectors": vectors, "rounds": rounds})
    async with open_broker(folder, "interval") as (broker, client, _):
        filled = await fill(client, Corpus(entries), vectors)
        last = filled.last_seq
        raw = last / median([await pull_all(client, last) for _ in range(DRAIN)])
        report.baseline("raw pull of the stream, undecoded", raw, "messages/s")
        ours = await connect(broker.url, broker.user, broker.password, "bench")  # reads as the service does
        try:
            await _views(report, ours, folder / "views.duckdb", last, raw, rounds)
        finally:
            await ours.close()
    return report


async def _views(report: Report, client: Client, path: Path, last: int, raw: float, rounds: int) -> None:
    def source(first_seq: int, last_seq: int) -> AsyncIterator[list[RawMessage]]:
        return replay(client, first_seq, last_seq, batch=REPLAY_BATCH_MESSAGES)

    store = ViewStore.open(path, memory_mb=MEMORY_MB)
    live = Host(store, discover_projections(), park=never_park)
    await live.open()
    began = time.perf_counter()
    await fold_range(live, source, last)
    report.figure("views caught up from nothing", last / (time.perf_counter() - began), "messages/s")
    times, cpu = [], time.process_time()
    for _ in range(rounds):
        began = time.perf_counter()
        rebuilt = await rebuild(live, source, memory_mb=MEMORY_MB)
        times.append(time.perf_counter() - began)
        if rebuilt.seq != last or rebuilt.parked:
            raise RuntimeError(f"rebuilt to {rebuilt.seq} of {last} with {rebuilt.parked} parked")
    cpu = (time.process_time() - cpu) / rounds
    rate = last / median(times)
    note = f"median of {rounds}; beside the live views, swap included; nothing else runs"
    report.figure("rebuild of all projections", rate, "messages/s", at_least(TARGET), note)
    report.figure("rebuild / raw pull", rate / raw, "ratio")
    report.figure("CPU of the rebuilding process", cpu / last * 1e6, "µs/message")
    report.figure("size of the views", (await asyncio.to_thread(path.stat)).st_size / MIB, "MiB")
    await live.close()
    store.close()
