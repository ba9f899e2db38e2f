"""A year of a crew of eight over a real journal: sweeps end in time, queries answer meanwhile, views equal a rebuild."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.memory_node import ADMIN, SWIFT, MemoryNode
from support.stack import SUBJECT_KEY
from support.views import MEMORY_MB

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.consumers.host.rebuild import verify
from crew_journal.consumers.reactors.compact import CompactReactor
from crew_journal.consumers.reactors.consolidate import ConsolidateReactor
from crew_journal.consumers.reactors.operators import OperatorsReactor
from crew_journal.consumers.reactors.peer_cards import PeerCardsReactor
from crew_journal.schemas.rules.sweeps import DAY_MS, SCHEDULES
from crew_journal.schemas.timestamps import format_ts
from crew_journal.services.query.entries.filters import parse_filters
from crew_journal.services.query.entries.queries import JournalQueries

BOUNDED, FULL = 1_600, 300_000
BATCH = 1_000
RUN = 160
"""Entries of which the first half is output of one type, written within two minutes."""
LAST = 45
"""Turns of people at the end, a minute apart."""
SWEEP_S = 120.0
"""Seconds that a sweep of the full year may take; the broker gives a tick to another node after some minutes."""
P99_S = 0.150
AGENTS = tuple(f"agent{n}" for n in range(8))
PEOPLE = ("maria", "otto", "lena")
NOISE = ("exec.output_chunk", "container.metrics", "llm.call")
OTHERS = ("run.completed", "peer.escalation", "keeper.decision", "summary.generated", "crew.action")
SAID = ("My timezone is UTC+1.", "I prefer short answers.", "We use PostgreSQL 16.", "Thanks, go on.", "What failed?")
WORDS = ("deploy", "checkout", "parser", "rollback", "memory", "night", "billing", "queue", "limit", "timeout", "index")


def year(node: MemoryNode, entries: int) -> Iterator[list[dict[str, Any]]]:
    """Entries of 365 days up to now, in batches: half of them of types that are compacted after 30 days."""
    draw = random.Random(11)
    step = timedelta(days=365) / entries
    batch: list[dict[str, Any]] = []
    for n in range(entries):
        is_noise, is_last = n % RUN < RUN // 2, n >= entries - LAST
        at = node.now - step * (entries - n + (n % RUN if is_noise else 0)) + timedelta(seconds=n % RUN)
        ts = format_ts(node.now - timedelta(minutes=entries - n) if is_last else at)
        agent = draw.choice(AGENTS)
        entry: dict[str, Any] = {
            "id": f"y{n}",
            "ts": ts,
            "crew_id": "red",
            "agent_id": agent,
            "trace_id": f"s{n // 40}",
        }
        kind = n % 5
        if is_noise and not is_last:
            entry |= {"entry_type": NOISE[n // RUN % 3], "summary": f"chunk {n}", "payload": {"data": "x" * 450}}
        elif kind == 0 or is_last:
            text = SAID[n // len(PEOPLE) % len(SAID)]
            entry |= {"entry_type": "chat.user_message", "summary": text, "actor_type": "user"}
            entry["actor_id"] = PEOPLE[n % len(PEOPLE)]
        else:
            words = " ".join(draw.choices(WORDS, k=8))
            entry |= {"entry_type": OTHERS[kind], "summary": f"{words} {n}", "payload": {"decision": "denied"}}
        batch.append(entry)
        if len(batch) == BATCH or n == entries - 1:
            yield batch
            batch = []


async def listed(queries: JournalQueries, count: int, done: asyncio.Event) -> list[float]:
    """Seconds of list queries, with filters that people use; at least ``count``, until ``done``."""
    filters = [
        parse_filters(given)
        for given in (
            [],
            [("agent_id", "agent3")],
            [("types", "peer.escalation")],
            [("crew_id", "red"), ("severity", "info")],
            [("actor_id", "maria")],
        )
    ]
    took: list[float] = []
    while len(took) < count or not done.is_set():
        began = time.perf_counter()
        await queries.list(ADMIN, filters[len(took) % len(filters)], limit=50)
        took.append(time.perf_counter() - began)
    return took


async def live_through(node: MemoryNode, entries: int, queries_least: int) -> tuple[dict[str, Any], list[float]]:
    """Append the year, run every sweep, and hold the views to a rebuild; counts and seconds by sweep, seconds of queries."""
    last = 0
    for batch in year(node, entries):
        last = (await node.journal.append_batch(ADMIN, batch))[-1].seq
    await node.store.wait_for(last, 1_800.0)
    parts: dict[str, Any] = {"clock": node.clock, "limits": SWIFT}
    await node.start(ConsolidateReactor(node.client, node.writer, node.store, **parts))
    await node.start(PeerCardsReactor(node.client, node.writer, node.store, subject_key=SUBJECT_KEY, **parts))
    await node.start(OperatorsReactor(node.client, node.writer, node.store, subject_key=SUBJECT_KEY, **parts))
    await node.start_health()
    await node.start(CompactReactor(node.client, node.writer, node.store, **parts))
    figures: dict[str, Any] = {}

    async def sweep(name: str) -> dict[str, Any]:
        node.advance(seconds=2)
        began = time.perf_counter()
        finished = await node.swept(name, await node.tick(name))
        assert finished["error"] is None, name
        figures[name] = {**finished["counts"], "seconds": round(time.perf_counter() - began, 2)}
        counts: dict[str, Any] = finished["counts"]
        return counts

    for name in ("consolidation", "peer_cards", "operators", "health"):
        await sweep(name)
    queries = JournalQueries(node.store)
    done = asyncio.Event()
    asking = asyncio.create_task(listed(queries, queries_least, done))
    archived = 0
    while True:
        counts = await sweep("compaction")
        archived += counts["entries_archived"]
        if not counts["entries_left"]:
            break
    done.set()
    took = await asking
    queries.close()
    figures["archived"] = archived
    [(head,)] = node.store.rows("SELECT max(seq) FROM journal_entries")
    await node.caught_up(head)

    def source(first: int, until: int) -> AsyncIterator[list[RawMessage]]:
        return replay(node.client, first, until, batch=BATCH)

    results = await verify(node.host, source, memory_mb=MEMORY_MB)
    assert [one.projection for one in results if not one.equal] == []
    return figures, took


async def test_a_years_sweeps_end_and_the_views_equal_a_rebuild(live: MemoryNode) -> None:
    figures, _ = await live_through(live, BOUNDED, 50)
    assert figures["operators"]["written"] == len(PEOPLE)
    assert figures["archived"] > 0.35 * BOUNDED


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_a_full_year_keeps_every_sweep_and_query_in_its_bounds(live: MemoryNode) -> None:
    figures, took = await live_through(live, FULL, 5_000)
    took.sort()
    p99 = took[int(len(took) * 0.99)]
    print(f"{figures}; {len(took)} lists, median {took[len(took) // 2] * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
    assert figures["archived"] > 0.4 * FULL
    assert max(one["seconds"] for name, one in figures.items() if name != "archived") <= SWEEP_S
    assert p99 <= P99_S


def test_the_pages_figure_of_ticks_in_a_workspace_year_follows_from_the_schedule() -> None:
    ticks = sum(DAY_MS // schedule.period_ms for schedule in SCHEDULES.values()) * 365
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    said = re.search(r"([\d,]+) ticks and as many ends", page)
    assert said is not None
    assert int(said[1].replace(",", "")) == ticks
