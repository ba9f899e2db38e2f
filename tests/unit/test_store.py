"""The store: readers beside the writer, bounded waits, swaps that nobody sees half of."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.views import MEMORY_MB, file_names, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.errors import Unavailable, ViewsBehind


async def test_waiting_for_a_sequence_ends_with_the_commit_or_with_the_bound(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        with pytest.raises(ViewsBehind):
            await live.store.wait_for(1, 0.01, "entries")
        waiting = asyncio.ensure_future(live.store.wait_for(2, 120.0, "entries", "fulltext"))
        await asyncio.sleep(0)
        await live.host.fold([at(1, entry("e1"))])
        assert not waiting.done()
        await live.host.fold([at(2, entry("e2"))])
        assert await waiting == 2


async def test_readers_of_many_threads_see_whole_commits_while_files_are_swapped(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    await store.write(lambda con: con.execute("CREATE TABLE t AS SELECT 0 AS generation FROM range(1000)"))
    stop = threading.Event()

    def read() -> set[tuple[int, int]]:
        seen = set()
        while not stop.is_set():
            [row] = store.rows("SELECT count(*), count(DISTINCT generation) FROM t")
            seen.add(row)
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for generation in range(1, 6):
                fresh = tmp_path / "fresh.duckdb"
                with duckdb.connect(str(fresh)) as con:
                    con.execute(f"CREATE TABLE t AS SELECT {generation} AS generation FROM range(1000)")
                await store.swap(fresh)
                await store.write(lambda con: con.execute("UPDATE t SET generation = generation"))
        finally:
            stop.set()
        seen = set().union(*(reader.result() for reader in readers))
    assert seen == {(1000, 1)}
    assert store.generation == 5
    assert store.rows("SELECT any_value(generation) FROM t") == [(5,)]
    store.close()
    assert file_names(tmp_path) == ["v.duckdb"]


async def test_a_file_with_a_log_of_its_own_is_not_swapped_in(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    fresh = tmp_path / "fresh.duckdb"
    duckdb.connect(str(fresh)).close()
    (tmp_path / "fresh.duckdb.wal").write_bytes(b"not yet in the file")
    with pytest.raises(Unavailable):
        await store.swap(fresh)
    assert store.generation == 0
    assert store.rows("SELECT 1") == [(1,)]
    store.close()


async def test_a_cancelled_write_is_not_abandoned_half_way(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    begun, go_on = threading.Event(), threading.Event()

    def work(con: duckdb.DuckDBPyConnection) -> None:
        begun.set()
        go_on.wait(30)
        con.execute("CREATE TABLE t (a INTEGER)")

    writing = asyncio.ensure_future(store.write(work))
    await asyncio.to_thread(begun.wait, 30)
    writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert store.rows("SELECT count(*) FROM t") == [(0,)]
    store.close()


async def test_work_that_fails_after_its_caller_was_cancelled_is_not_reported_as_lost(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    begun, go_on = threading.Event(), threading.Event()
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

    def work(con: duckdb.DuckDBPyConnection) -> None:
        begun.set()
        go_on.wait(30)
        raise KeyError("usd")

    writing = asyncio.ensure_future(store.write(work))
    await asyncio.to_thread(begun.wait, 30)
    writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    del writing
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
    store.close()


async def test_a_closed_store_refuses_readers_and_closes_twice(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)
    store.close()
    store.close()
    with pytest.raises(Unavailable):
        store.rows("SELECT 1")
