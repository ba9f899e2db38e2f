"""Rebuild and verify, while the live host goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from support.events import at, entry, vector
from support.views import MEMORY_MB, file_names, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host import rebuild as rebuild_module
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.consumers.host.transaction import forget
from crew_journal.schemas.core.errors import NotFound

STREAM = [
    at(
        seq,
        vector(f"e{seq - 1}", entry_seq=seq - 1, seed=seq)
        if seq % 3 == 0
        else entry(f"e{seq}", summary=f"entry {seq}"),
    )
    for seq in range(1, 61)
]
STREAM[10] = at(11, entry("e1", summary="another content"))
STREAM[12] = at(13, entry("e13", summary=" "))


@pytest.mark.parametrize("names", [None, ["fulltext"], ["entries", "vectors"]])
async def test_a_rebuild_mends_what_was_broken_and_parks_nothing_twice(tmp_path: Path, names: list[str] | None) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        sound, parked = live.digests(), len(live.dead.parked)
        generation = live.store.generation
        for table in ("postings_tail", "journal_entries", "journal_embeddings"):
            if names is None or table.startswith("journal") == ("entries" in names):
                await live.store.write(lambda con, t=table: con.execute(f"DELETE FROM {t} WHERE rowid % 3 = 0"))
        assert live.digests() != sound
        found = await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB, names=names)
        assert found.seq == 60
        assert live.digests() == sound
        assert len(live.dead.parked) == parked
        assert live.store.generation > generation
        assert live.host.identities.find("w1", "e1") is not None
        await live.host.fold([at(61, entry("e61"))])
        assert live.store.view_seq() == 61
    assert file_names(tmp_path) == ["v.duckdb"]


@pytest.mark.parametrize("names", [None, ["vectors", "importance"]])
async def test_a_fact_told_again_after_a_rebuild_makes_no_second_row(tmp_path: Path, names: list[str] | None) -> None:
    again = [at(61, vector("e2", entry_seq=2, seed=99)), at(62, vector("e62", entry_seq=58, seed=62))]
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:10])
        await live.store.write(lambda con: con.execute("DELETE FROM journal_embeddings"))
        await live.store.write(forget)  # as after a restart: the keys are read from what the table has lost
        await live.host.fold(STREAM[10:])
        await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB, names=names)
        await live.host.fold(again)
        results = await verify(live.host, source_of([*STREAM, *again]), memory_mb=MEMORY_MB)
        assert all(result.equal for result in results)
        rows = live.store.rows("SELECT count(*), count(DISTINCT key) FROM journal_embeddings")
        assert rows == [(21, 21)]


async def test_writes_go_on_during_a_rebuild_and_are_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_module, "REPLAY_BATCH_MESSAGES", 5)
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:30])
        written = 30

        async def source(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
            nonlocal written
            async for batch in source_of(STREAM)(first, last):
                if written < 60 and last < 60 and not live.host._lock.locked():
                    await live.host.fold(STREAM[written : written + 10])
                    written += 10
                yield batch

        found = await rebuild(live.host, source, memory_mb=MEMORY_MB)
        assert written == found.seq == 60
        results = await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
        assert all(result.equal for result in results)
        assert {result.projection for result in results} >= {"admission", "entries", "fulltext", "vectors"}


async def test_verify_names_and_counts_the_rows_that_differ(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        await live.store.write(lambda con: con.execute("UPDATE journal_entries SET summary = 'forged' WHERE seq = 20"))
        await live.store.write(lambda con: con.execute("DELETE FROM journal_embeddings WHERE seq = 9"))
        await live.store.write(lambda con: con.execute("INSERT INTO postings SELECT * FROM postings_tail LIMIT 1"))
        results = {r.projection: r for r in await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB)}
        assert {name for name, result in results.items() if not result.equal} == {"entries", "vectors", "fulltext"}
        [entries] = results["entries"].differences
        assert (entries.key["seq"], entries.column, entries.kind) == ("20", "summary", "changed")
        assert results["vectors"].differing == {"journal_embeddings": {"only fresh": 1}}
        assert results["fulltext"].differing == {"postings": {"only live": 1}}


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.nightly)])
async def test_a_row_of_any_view_that_is_removed_doubled_or_of_before_is_found(tmp_path: Path, rounds: int) -> None:
    draw = random.Random(32)
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        owner = {
            table.name: projection.name
            for projection in live.host.projections
            for table in projection.tables
            if table.digested and live.store.rows(f"SELECT 1 FROM {table} LIMIT 1")
        }
        assert len(owner) >= 3
        for _ in range(rounds):
            table = draw.choice(sorted(owner))
            [row] = draw.sample(live.store.rows(f"SELECT rowid FROM {table}"), 1)
            which = f"{table} WHERE rowid = {row[0]}"
            changes = [f"DELETE FROM {which}", f"INSERT INTO {table} FROM {which}"]
            change = draw.choice(changes)
            if table == "journal_entries" and draw.random() < 0.5:
                change = f"DELETE FROM {table} WHERE seq > 40"  # as in an older copy
            await live.store.write(lambda con, sql=change: con.execute(sql))
            results = await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
            assert {result.projection for result in results if not result.equal} == {owner[table]}, change
            await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB, names=[owner[table]])


async def test_what_a_later_event_settled_is_reported_as_it_is_now(tmp_path: Path) -> None:
    again = at(61, vector("e8", entry_seq=8, seed=99))
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        await live.store.write(lambda con: con.execute("UPDATE journal_embeddings SET text_hash = 'x' WHERE seq = 9"))

        async def source(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
            if live.host.checkpoint == 60 and not live.host._lock.locked():
                await live.host.fold([again])  # replaces the row that differs
            async for batch in source_of([*STREAM, again])(first, last):
                yield batch

        results = await verify(live.host, source, memory_mb=MEMORY_MB)
        assert {(r.projection, r.differences) for r in results if not r.equal or r.differences} == set()
        assert {r.projection: r.seq for r in results}["vectors"] == 61


async def test_a_rebuild_does_not_warn_of_what_was_parked_before(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        with structlog.testing.capture_logs() as first:
            await live.host.fold(STREAM)
        with structlog.testing.capture_logs() as second:
            await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
            await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
        assert {event["seq"] for event in first if event["log_level"] == "warning"} == {11, 13}
        assert [event for event in second if event["log_level"] == "warning"] == []


async def test_a_failing_stream_leaves_the_live_views_as_they_were(tmp_path: Path) -> None:
    async def failing(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
        yield [m for m in STREAM if m.seq < 20]
        raise ConnectionError("the broker is away")

    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        sound = live.digests()
        with pytest.raises(ConnectionError):
            await rebuild(live.host, failing, memory_mb=MEMORY_MB)
        assert live.digests() == sound
        await live.host.fold([at(61, entry("e61"))])
        assert live.host.checkpoint == 61
    assert file_names(tmp_path) == ["v.duckdb"]


async def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        with pytest.raises(NotFound, match="fulltext"):
            await asyncio.wait_for(rebuild(live.host, source_of([]), memory_mb=MEMORY_MB, names=["nonsense"]), 120)
