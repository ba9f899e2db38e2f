"""Batches of folds are bounded in bytes, and what reads all rows copes with long texts, whatever entries hold."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage, in_parts
from crew_journal.consumers.host.rebuild import _ranges, verify
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.ports import CommittedBatch
from crew_journal.schemas.settings import BATCH_BYTES

KIB = 1024
MEMORY_MB = 64
LONG = 150_000
ENTRIES = 420
"""Of ``LONG`` characters: as many bytes as DuckDB may take memory in these tests."""


def random_entry(seq: int, size: int) -> RawMessage:
    text = f"{random.Random(seq).getrandbits(4 * size):0{size}x}"
    return at(seq, entry(f"e{seq}", entry_type="note.x", summary="x", payload={"t": text}))


def message(seq: int, size: int) -> RawMessage:
    return RawMessage(seq, "journal.w._._.note.x", None, b"x" * size, 0)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], [[]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([50, 50, 1], [[50, 50], [1]]),
        ([500], [[500]]),
        ([1, 500, 1, 99, 1], [[1], [500], [1, 99], [1]]),
    ],
)
def test_messages_are_cut_into_parts_by_their_bytes_and_keep_their_order(
    sizes: list[int], parts: list[list[int]]
) -> None:
    found = list(in_parts([message(seq, size) for seq, size in enumerate(sizes, 1)], 100))
    assert [[len(one.data) for one in part] for part in found] == parts
    assert [one.seq for part in found for one in part] == list(range(1, len(sizes) + 1))


async def test_a_batch_of_long_entries_is_committed_in_parts_up_to_the_gap_at_its_end(tmp_path: Path) -> None:
    commits: list[CommittedBatch] = []
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        live.store.subscribe(commits.append)
        await live.host.fold([random_entry(seq, 200 * KIB) for seq in range(1, 31)], last_seq=40)
        assert live.host.checkpoint == 40
    assert len(commits) > 1
    assert [batch.first_seq for batch in commits[1:]] == [batch.last_seq + 1 for batch in commits[:-1]]
    assert max(len(batch.entries) for batch in commits) * 200 * KIB <= BATCH_BYTES


async def test_verify_copes_with_as_many_bytes_of_random_entries_as_there_is_memory(tmp_path: Path) -> None:
    """Once, 1,380 entries of 240 KB and 512 MB."""

    def source(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
        async def read() -> AsyncIterator[list[RawMessage]]:
            for begin in range(first, last + 1, 20):
                yield [random_entry(seq, LONG) for seq in range(begin, min(begin + 20, last + 1))]

        return read()

    async with node(tmp_path / "v.duckdb", discover_projections(), memory_mb=MEMORY_MB) as live:
        async for batch in source(1, ENTRIES):
            await live.host.fold(batch)
        assert all(result.equal for result in await verify(live.host, source, memory_mb=MEMORY_MB))


def test_long_texts_are_read_in_ranges_and_short_ones_at_once(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    try:

        def fill(con: duckdb.DuckDBPyConnection) -> tuple[list[str], list[str]]:
            con.execute("CREATE TABLE short (a VARCHAR, n INTEGER)")
            con.execute("INSERT INTO short SELECT 'x' || range, range FROM range(5000)")
            con.execute("CREATE TABLE long (a VARCHAR)")
            con.execute("INSERT INTO long SELECT repeat('x', 1000000) || range FROM range(40)")
            return list(_ranges(con, "short")), list(_ranges(con, "long"))

        short, ranges = store.write_blocking(fill)
        assert short == [""]
        assert len(ranges) == 3
        counted = sum(store.rows(f"SELECT count(*) FROM long{one}")[0][0] for one in ranges)
        assert counted == 40
    finally:
        store.close()


def test_the_views_use_no_compression_that_unpacks_thousands_of_texts_to_read_one(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    try:

        def fill(con: duckdb.DuckDBPyConnection) -> None:
            con.execute("CREATE TABLE long (a VARCHAR)")
            texts = [[f"{random.Random(n).getrandbits(80_000):x}"] for n in range(200)]
            con.executemany("INSERT INTO long VALUES (?)", texts)
            con.execute("CHECKPOINT")

        store.write_blocking(fill)
        used = store.rows("SELECT DISTINCT compression FROM pragma_storage_info('long') WHERE segment_type = 'VARCHAR'")
        assert "ZSTD" not in {name.upper() for (name,) in used}
    finally:
        store.close()
