"""Views whose file DuckDB has given up: reads are a 503 for a moment, the file is opened again, nothing is folded twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.faults import no_file_grows
from support.stack import until
from support.views import Node, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host import folding
from crew_journal.consumers.host import host as host_module
from crew_journal.consumers.host import host as tidying
from crew_journal.consumers.host.bulk import fold_range
from crew_journal.consumers.host.faults import FoldingStopped
from crew_journal.consumers.host.store import ViewStore, ViewsUnusable

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq} of many " + "word " * 50)) for seq in range(1, 401)]
COUNT = "SELECT count(*) FROM journal_entries"


async def given_up(live: Node) -> None:
    """Have DuckDB give the file up, by a checkpoint for which there is no room."""
    with no_file_grows(), pytest.raises(ViewsUnusable, match=r"Failed to create checkpoint|Could not write file"):
        await live.store.checkpoint()


async def test_a_checkpoint_without_room_costs_a_moment_of_reads_and_no_restart(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await fold_range(live.host, source_of(STREAM, 50), 300)
        before, generation = live.digests(), live.store.generation
        await given_up(live)
        await until(lambda: live.store.trouble is None)
        assert live.store.reopened == 1
        assert live.store.rows(COUNT) == [(300,)]
        assert live.digests() == before
        await live.host.fold(STREAM[300:])
        assert live.store.generation > generation, "what caches know may be out of date"
        assert live.host.status().stopped is None
        async with node(tmp_path / "twin.duckdb", discover_projections()) as twin:
            await fold_range(twin.host, source_of(STREAM), len(STREAM))
            assert live.digests() == twin.digests()


async def test_reads_beside_it_are_answered_or_refused_with_the_reason(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await fold_range(live.host, source_of(STREAM, 50), 300)
        stop = asyncio.Event()

        def read() -> ViewsUnusable | None:
            try:
                assert live.store.rows(COUNT) == [(300,)]
            except ViewsUnusable as error:
                return error
            return None

        async def reader() -> list[ViewsUnusable | None]:
            seen = []
            while not stop.is_set():
                seen.append(await asyncio.to_thread(read))
            return seen

        readers = [asyncio.create_task(reader()) for _ in range(4)]
        for times in range(1, 6):
            await given_up(live)
            await until(lambda times=times: live.store.reopened == times)
        stop.set()
        answers = [answer for task in readers for answer in await task]
        refusals = [answer for answer in answers if answer is not None]
        assert len(refusals) < len(answers)
        for refusal in refusals:
            assert (refusal.status, bool(refusal.hint)) == (503, True)
            assert 'Could not write file "v.duckdb' in refusal.message
            assert str(tmp_path) not in refusal.message


async def test_a_commit_that_failed_but_is_in_the_file_is_not_folded_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "FOLD_BACKOFF_S", 0.001)
    committed = folding.commit
    failed = False

    def commit_and_fail(con: duckdb.DuckDBPyConnection, *given: object) -> None:
        nonlocal failed
        committed(con, *given)  # type: ignore[arg-type]
        if not failed:
            failed = True
            raise duckdb.FatalException("FATAL Error: nobody knows whether it was written")

    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:10])
        monkeypatch.setattr(folding, "commit", commit_and_fail)
        with pytest.raises(FoldingStopped, match="nobody knows"):
            await live.host.fold(STREAM[10:20])
        assert live.host.checkpoint == 10
        await until(lambda: live.store.reopened == 1)
        await live.host.fold(STREAM[10:20])
        assert live.host.checkpoint == 20
        assert live.host.status().stopped is None, "nothing is left to fold, so nothing is wrong"
        await live.host.fold(STREAM[20:30])
        assert live.store.rows(COUNT) == [(30,)]
        assert live.dead.parked == []


async def test_a_file_that_cannot_be_reopened_at_once_is_tried_again_by_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await fold_range(live.host, source_of(STREAM, 50), 300)
        connect, refused = ViewStore._connect, []

        def fail_twice(store: ViewStore) -> None:
            if len(refused) < 2:
                refused.append(store)
                raise MemoryError
            connect(store)

        monkeypatch.setattr(ViewStore, "_connect", fail_twice)
        await given_up(live)
        await until(lambda: len(refused) == 1)
        assert "checkpoint" in (live.store.trouble or ""), "status and readiness say it until it is open again"

        def answered() -> bool:
            try:
                return live.store.rows(COUNT) == [(300,)]
            except ViewsUnusable:
                return False

        await until(answered)
        assert live.store.trouble is None
        assert len(refused) == 2


async def test_an_idle_host_leaves_the_file_alone_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "WAL_IDLE_BYTES", 0)
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:10])
        wal, housekeeping = live.store.wal_bytes, tidying.Tidying(live.host)
        assert wal
        with monkeypatch.context() as full:
            full.setattr(tidying, "FREE_DISK_FLOOR_BYTES", 1 << 60)
            await housekeeping.tidy()
        assert live.store.wal_bytes == wal
        await housekeeping.tidy()
        assert live.store.wal_bytes == 0
