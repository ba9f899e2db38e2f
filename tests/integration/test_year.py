"""A simulated year through the host: incremental views equal a fresh rebuild, row for row, and match the rules."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.views import node, source_of
from support.year import YEAR_START_MS, year

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.bulk import fold_range
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.standing.rules import base_importance, decayed

FULL_ENTRIES = 100_000
BOUNDED_ENTRIES = 800
REBUILD_BATCH = 5_000
_ROWS = """SELECT i.entry_type, i.severity, i.priority, i.indexed_at, i.reference_count, i.importance_score, d.due_ms
    FROM memory_importance i JOIN memory_decays d USING (workspace_id) WHERE i.indexed_at <= d.due_ms"""


async def incremental(
    path: Path, stream: Sequence[RawMessage], largest: int
) -> tuple[dict[str, str], list[Any], float]:
    """Digests after folding batches of all sizes, with redelivery; the rows of importance; seconds."""
    rng = random.Random(5)
    began = time.perf_counter()
    async with node(path / "live.duckdb", discover_projections()) as live:
        first = 0
        while first < len(stream):
            size = rng.choice([1, 50, largest, largest])
            again = rng.choice([0, 0, 0, 3])
            await live.host.fold(stream[max(0, first - again) : first + size])
            first += size
        assert not live.dead.parked
        return live.digests(), live.store.rows(_ROWS), time.perf_counter() - began


async def rebuilt(path: Path, stream: Sequence[RawMessage]) -> tuple[dict[str, str], float]:
    """Digests of a bulk replay into a fresh file; seconds."""
    began = time.perf_counter()
    async with node(path / "fresh.duckdb", discover_projections()) as fresh:
        await fold_range(fresh.host, source_of(stream, REBUILD_BATCH), stream[-1].seq)
        return fresh.digests(), time.perf_counter() - began


def live_through(path: Path, entries: int, largest: int) -> tuple[float, float]:
    """Hold a year to what a rebuild makes of it; seconds of the incremental folds and of the rebuild."""
    stream = list(year(entries))
    assert stream[-1].published_ms - YEAR_START_MS > 364 * DAY_MS
    live, rows, folding = asyncio.run(incremental(path, stream, largest))
    fresh, rebuilding = asyncio.run(rebuilt(path, stream))
    assert live == fresh
    assert len(rows) > entries // 20
    for entry_type, severity, priority, indexed_at, count, score, due_ms in rows:
        if priority == "normal":  # a pin of the last day waits for the next decay
            assert score == decayed(base_importance(entry_type, severity, priority), indexed_at, due_ms, count)
    return folding, rebuilding


@pytest.mark.nightly
def test_a_years_views_equal_a_rebuild(tmp_path: Path) -> None:
    live_through(tmp_path, BOUNDED_ENTRIES, 1_000)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_a_full_years_views_equal_a_rebuild(tmp_path: Path) -> None:
    folding, rebuilding = live_through(tmp_path, FULL_ENTRIES, 4_000)
    print(f"{FULL_ENTRIES:,} entries: folded in {folding:.0f} s, rebuilt in {rebuilding:.0f} s")
