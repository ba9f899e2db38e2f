"""Decoding runs ahead of commits: whatever happens between the two, every message is folded once and in order."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.views import MEMORY_MB, Node, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host import folding
from crew_journal.consumers.host import host as host_module
from crew_journal.consumers.host.bulk import calm_collector, fold_range, read_ahead
from crew_journal.consumers.host.faults import FoldingStopped
from crew_journal.consumers.host.rebuild import rebuild

LAST = 40
STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq}")) for seq in range(1, LAST + 1)]
STREAM[20] = at(21, entry("e3", summary="another content"))  # a repeat of an id two batches before it
STREAM[21] = at(22, entry("e20", summary="another content"))  # and of one in the batch before it
COUNTED = [seq for seq in range(1, LAST + 1) if seq not in (21, 22)]


def seqs(live: Node) -> list[int]:
    return [row[0] for row in live.store.rows("SELECT seq FROM journal_entries ORDER BY seq")]


def identities(live: Node) -> list[int | None]:
    found = [live.host.identities.find("w1", f"e{seq}") for seq in range(1, LAST + 1)]
    return [identity.seq if identity is not None else None for identity in found]


class Commits:
    """The commit of the host, which a test may hold up or let fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: set[int] = set()
        self.done: list[int] = []
        self._real = folding.commit
        monkeypatch.setattr(folding, "commit", self)
        monkeypatch.setattr(host_module, "FOLD_BACKOFF_S", 0.001)

    def __call__(self, con: duckdb.DuckDBPyConnection, projections: object, batch: object, *rest: object) -> None:
        last: int = batch.last_seq  # type: ignore[attr-defined]
        if last in self.failing:
            raise OSError(28, "No space left on device")
        self._real(con, projections, batch, *rest)  # type: ignore[arg-type]
        self.done.append(last)


async def test_a_failing_commit_drops_the_batch_behind_it_and_a_second_try_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    commits.failing = {14}
    told: list[tuple[int, int]] = []
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        with pytest.raises(FoldingStopped):
            await fold_range(live.host, source_of(STREAM), LAST, lambda *p: told.append(p))
        assert commits.done == [7]
        assert told == [(7, LAST)]
        assert live.host.checkpoint == 7
        assert seqs(live) == list(range(1, 8))
        commits.failing = set()
        await fold_range(live.host, source_of(STREAM), LAST, lambda *p: told.append(p))
        assert live.host.checkpoint == LAST
        assert seqs(live) == COUNTED
        assert identities(live) == [*range(1, 21), None, None, *range(23, LAST + 1)]
        assert live.dead.names() == {("admission", 1, 21), ("admission", 1, 22)}
        assert told[-1] == (LAST - 7, LAST - 7)
        again = identities(live)
    async with node(tmp_path / "v.duckdb", discover_projections()) as reopened:
        assert identities(reopened) == again
        assert seqs(reopened) == COUNTED


async def test_the_next_batch_is_decoded_while_one_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        held = asyncio.Event()
        fold_ready = live.host.fold_ready

        async def waits(ready: host_module.Ready) -> None:
            if ready.last_seq == 14:
                await held.wait()
            await fold_ready(ready)

        monkeypatch.setattr(live.host, "fold_ready", waits)
        folding_range = asyncio.create_task(fold_range(live.host, source_of(STREAM), LAST))
        async with asyncio.timeout(120):
            while live.host.identities.find("w1", "e16") is None:  # noqa: ASYNC110  # decoding tells nobody
                await asyncio.sleep(0.001)
        assert commits.done == [7]
        held.set()
        await folding_range
        assert seqs(live) == COUNTED


async def test_views_replaced_while_a_batch_is_ready_have_its_identities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:10])
        ready = await live.host.prepare(STREAM[10:25], 10, None)
        assert ready is not None
        await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
        assert live.host.identities.find("w1", "e12") is None  # the new index is as the file has it
        await live.host.fold_ready(ready)
        assert seqs(live) == [seq for seq in COUNTED if seq <= 25]
        assert identities(live)[:25] == [*range(1, 21), None, None, *range(23, 26)]
        await live.host.fold(STREAM[25:])
        twice = at(LAST + 1, entry("e12", summary="another content"))
        await live.host.fold([twice])
        assert ("admission", 1, LAST + 1) in live.dead.names()


async def test_a_crash_with_a_batch_ready_leaves_exactly_what_was_committed(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM[:10])
        assert await live.host.prepare(STREAM[10:25], 10, None) is not None  # and then the process is gone
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        assert live.host.checkpoint == 10
        assert live.host.identities.find("w1", "e12") is None
        await fold_range(live.host, source_of(STREAM), LAST)
        assert seqs(live) == COUNTED


async def test_a_batch_that_was_folded_meanwhile_is_not_folded_again(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        ready = await live.host.prepare(STREAM[:10], 0, None)
        assert ready is not None
        await live.host.fold(STREAM[:4])
        await live.host.fold_ready(ready)
        assert live.host.checkpoint == 10
        again = await live.host.prepare(STREAM[:10], 0, None)
        assert again is not None
        await live.host.fold_ready(again)
        assert seqs(live) == list(range(1, 11))


async def test_stopping_to_read_ahead_closes_the_source_at_once() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[list[RawMessage]]:
        try:
            for message in STREAM:
                yield [message]
        finally:
            closed.set()

    ahead = read_ahead(source())
    assert await anext(ahead) == [STREAM[0]]
    await ahead.aclose()
    assert closed.is_set()


def test_the_collector_is_as_before_after_the_last_of_two_overlapping_replays() -> None:
    before = gc.get_threshold()
    first, second = calm_collector(), calm_collector()
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold() != before
    first.__exit__(None, None, None)
    assert gc.get_threshold() != before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
