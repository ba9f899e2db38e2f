"""A year of a crew of eight over a real journal: sweeps are bounded, queries answer meanwhile, views equal a rebuild."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.events import document
from support.memory_node import ADMIN, WORKSPACE, MemoryNode
from support.stack import SUBJECT_KEY
from support.views import MEMORY_MB

from crew_journal.consumers.entries.reactor import CompactReactor
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.consumers.health.reactor import HealthReactor
from crew_journal.consumers.host.rebuild import verify
from crew_journal.consumers.learning.daily_logs import LOGS_MAX
from crew_journal.consumers.learning.reactor import ConsolidateReactor
from crew_journal.consumers.operators.peer_cards_reactor import PeerCardsReactor
from crew_journal.consumers.operators.reactor import OperatorsReactor
from crew_journal.schemas.access.events import ConsentChanged
from crew_journal.schemas.core.timestamps import DAY_MS, format_ts
from crew_journal.schemas.operators.rules import key_id, subject_hash
from crew_journal.schemas.sweeps.rules import ALL_SWEEPS
from crew_journal.services.entries.filters import parse_filters
from crew_journal.services.entries.queries import JournalQueries

BOUNDED, FULL = 1_600, 300_000
BATCH = 1_000
RUN = 160
"""Entries of which the first half is output of one type, written within two minutes."""
LAST = 45
"""Turns of people at the end, a minute apart."""
SWEEP_S = 120.0
"""Seconds that a sweep of the full year may take; the broker gives a tick to another node after some minutes."""
SWEEP_ROWS = {"consolidation": 15_000, "peer_cards": 15_000, "operators": 2_000, "health": 1_000, "compaction": 105_000}
"""Rows of the views that a sweep of the full year may look at, however many entries there are."""
P99_S = 0.150
AGENTS = tuple(f"agent{n}" for n in range(8))
PEOPLE = ("maria", "otto", "lena")
THEIRS = ADMIN.model_copy(update={"speaks_for": tuple(f"user:{name}" for name in PEOPLE)})
"""Speaks for the people."""
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


def logs(node: MemoryNode, days: int) -> Iterator[list[Any]]:
    """A daily log of each agent and day, up to today: a line that recurs and two that do not."""
    draw = random.Random(12)
    for ago in range(days, -1, -1):
        key = (node.now - timedelta(days=ago)).date().isoformat()
        once = " ".join("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(7))
        said = f"- The billing queue of {key} needed a restart before the night deploy\n- {once}\n"
        yield [
            document(f"log-{agent}-{ago}", workspace=WORKSPACE, owner=f"a-{agent}", key=key, content=said)
            for agent in AGENTS
        ]


class Looking:
    """Views that count the rows which are read through them."""

    def __init__(self, views: Any) -> None:
        self._views = views
        self.rows_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._views, name)

    def rows(self, *asked: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._views.rows(*asked)
        self.rows_read += len(found)
        return found

    def columns(self, *asked: Any) -> Any:
        found = self._views.columns(*asked)
        self.rows_read += len(found)
        return found


async def listed(queries: JournalQueries, count: int, took: list[float], done: asyncio.Event) -> None:
    """List with filters that people use, at least ``count`` times, until ``done``; seconds go to ``took``."""
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
    while len(took) < count or not done.is_set():
        began = time.perf_counter()
        await queries.list(ADMIN, filters[len(took) % len(filters)], limit=50)
        took.append(time.perf_counter() - began)


async def live_through(node: MemoryNode, entries: int, queries_least: int) -> tuple[dict[str, Any], list[float], int]:
    """Append the year, run every sweep, and hold the views to a rebuild.

    Returns:
        Counts, seconds, seconds of CPU and rows of each sweep; seconds of queries, of which so many ended before the
        compaction did.
    """
    last, began = 0, time.perf_counter()
    for name in PEOPLE:
        hashed = subject_hash(SUBJECT_KEY, WORKSPACE, name)
        consent = ConsentChanged(subject_hash=hashed, granted=True, key_id=key_id(SUBJECT_KEY))
        await node.journal.record(WORKSPACE, consent, summary="decided")
    for batch in year(node, entries):
        last = (await node.journal.append_batch(THEIRS, batch))[-1].seq
    for written in logs(node, max(5, 365 * entries // FULL)):
        done = await asyncio.gather(*(node.writer.publish(one.subject, one.body, one.headers) for one in written))
        last = max(one.seq for one in done)
    await node.store.wait_for(last, 1_800.0)
    node.advance(seconds=time.perf_counter() - began)
    views = Looking(node.store)
    for kind in (ConsolidateReactor, PeerCardsReactor, OperatorsReactor, HealthReactor, CompactReactor):
        await node.react(kind, views=views)
    figures: dict[str, Any] = {}

    async def sweep(name: str, as_: str | None = None) -> dict[str, Any]:
        node.advance(seconds=2)
        began, cpu_began, views.rows_read = time.perf_counter(), time.process_time(), 0
        finished = await node.swept(name, await node.tick(name), SWEEP_S)
        assert finished["error"] is None, name
        assert views.rows_read <= SWEEP_ROWS[name], name
        spent = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu_began}
        figures[as_ or name] = {**finished["counts"], "rows": views.rows_read} | {
            k: round(s, 2) for k, s in spent.items()
        }
        counts: dict[str, Any] = finished["counts"]
        return counts

    for name in ("consolidation", "peer_cards", "operators", "health"):
        await sweep(name)
    queries = JournalQueries(node.store)
    done_compacting = asyncio.Event()
    took: list[float] = []
    asking = asyncio.create_task(listed(queries, queries_least, took, done_compacting))
    archived = n = 0
    while True:
        counts = await sweep("compaction", f"compaction {(n := n + 1)}")
        archived += counts["entries_archived"]
        if not counts["entries_left"]:
            break
    done_compacting.set()
    during = len(took)
    await asking
    queries.close()
    figures["archived"] = archived
    node.advance(days=31)
    await sweep("consolidation", "a month later")
    [(head,)] = node.store.rows("SELECT max(seq) FROM journal_entries")
    await node.caught_up(head)

    def source(first: int, until: int) -> AsyncIterator[list[RawMessage]]:
        return replay(node.client, first, until, batch=BATCH)

    results = await verify(node.host, source, memory_mb=MEMORY_MB)
    assert [result.projection for result in results if not result.equal] == []
    return figures, took, during


async def test_a_years_sweeps_end_and_the_views_equal_a_rebuild(live: MemoryNode) -> None:
    figures, _, _ = await live_through(live, BOUNDED, 50)
    assert figures["operators"]["written"] == len(PEOPLE)
    assert figures["archived"] > 0.35 * BOUNDED
    assert figures["consolidation"]["notes_promoted"] == len(AGENTS)
    assert figures["a month later"]["logs_archived"] == 5 * len(AGENTS), "of six logs each, the newest stays"


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_a_full_year_keeps_every_sweep_and_query_in_its_bounds(live: MemoryNode) -> None:
    figures, took, during = await live_through(live, FULL, 5_000)

    def percentile(seconds: list[float], share: float) -> float:
        return sorted(seconds)[int(len(seconds) * share)]

    for name, one in figures.items():
        print(f"{name}: {one}")
    for name, seconds in (("all", took), ("during the compaction", took[:during])):
        median, p99 = percentile(seconds, 0.5) * 1e3, percentile(seconds, 0.99) * 1e3
        print(f"{len(seconds)} lists, {name}: median {median:.0f} ms, p99 {p99:.0f} ms; load {os.getloadavg()}")
    assert figures["archived"] > 0.4 * FULL
    assert figures["a month later"]["logs_archived"] == LOGS_MAX
    assert percentile(took, 0.99) <= P99_S


def test_the_pages_figure_of_ticks_in_a_workspace_year_follows_from_the_schedule() -> None:
    ticks = sum(DAY_MS // sweep.schedule.period_ms for sweep in ALL_SWEEPS) * 365
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    said = re.search(r"in a workspace, ([\d,]+) of each a year", page)
    assert said is not None
    assert int(said[1].replace(",", "")) == ticks
