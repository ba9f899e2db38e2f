"""The host: one transaction a batch, poison parked before it is passed, the environment's faults lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb
import pytest
from support.events import at, control, entry, vector
from support.views import DeadLetters, Node, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host import host as host_module
from crew_journal.consumers.host.admission import IdentityIndex
from crew_journal.consumers.host.bulk import catch_up
from crew_journal.consumers.host.faults import FoldingStopped
from crew_journal.consumers.host.folding import beyond, prepare
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.access.events import TokenRevoked
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import FoldError, ViewsDamaged
from crew_journal.schemas.core.ports import CommittedBatch
from crew_journal.schemas.core.table import Seq, Table, Tables

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq}")) for seq in range(1, 13)]


class SeqRow(NamedTuple):
    seq: Seq


SEEN = Table("seen", SeqRow, "seen")
OTHER = Table("other", SeqRow, "other")


class Seen:
    """Remembers the sequences it folded; fails as told."""

    name: ClassVar[str] = "seen"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (SEEN,)
    folds: ClassVar = (EntryRecorded,)

    def __init__(self, faults: Mapping[int, Exception] | None = None) -> None:
        self.faults = dict(faults or {})

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        for event in batch.events:
            if event.seq in self.faults:
                raise self.faults[event.seq]
        tx.insert(SEEN, {"seq": [event.seq for event in batch.events]})


class Other(Seen):
    """A second one beside it."""

    name: ClassVar[str] = "other"
    tables: ClassVar[Tables] = (OTHER,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        tx.insert(OTHER, {"seq": [event.seq for event in batch.events]})


def seqs(live: Node, table: str = "seen") -> list[int]:
    return [row[0] for row in live.store.rows(f"SELECT seq FROM {table} ORDER BY seq")]


async def test_a_batch_is_folded_once_however_often_it_is_delivered(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [Seen()]) as live:
        await live.host.fold(STREAM[:5])
        await live.host.fold([STREAM[4], STREAM[2], STREAM[6], STREAM[5], STREAM[6]])
        assert seqs(live) == [1, 2, 3, 4, 5, 6, 7]
        assert live.host.checkpoint == 7


def test_the_part_of_a_batch_beyond_a_sequence_begins_right_behind_it() -> None:
    index = IdentityIndex()
    batch = Batch(prepare(STREAM[:4], index, 1, 4).events, 1, 4)
    rest = beyond(batch, 2)
    assert ([event.seq for event in rest.events], rest.first_seq, rest.last_seq) == ([3, 4], 3, 4)
    assert beyond(batch, 0) is batch


async def test_a_gap_at_the_end_moves_the_checkpoint(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [Seen()]) as live:
        await live.host.fold(STREAM[:2], last_seq=9)
        assert live.host.checkpoint == 9
        await live.host.fold([], last_seq=11)
        assert live.store.view_seq("seen") == 11
        assert seqs(live) == [1, 2]


@pytest.mark.parametrize("fault", [FoldError("bad"), ValueError("bad"), duckdb.ConversionException("bad")])
async def test_a_poison_event_is_parked_and_the_rest_is_folded(tmp_path: Path, fault: Exception) -> None:
    async with node(tmp_path / "v.duckdb", [Seen({3: fault, 7: fault}), Other()]) as live:
        await live.host.fold(STREAM[:9])
        assert seqs(live) == [1, 2, 4, 5, 6, 8, 9]
        assert seqs(live, "other") == list(range(1, 10))
        assert live.dead.names() == {("seen", 1, 3), ("seen", 1, 7)}
        assert live.host.checkpoint == 9
        assert live.host.laggards == ()
        await live.host.fold(STREAM)
        assert seqs(live)[-1] == 12


async def test_no_checkpoint_passes_a_poison_event_before_its_parking_is_acked(tmp_path: Path) -> None:
    dead = DeadLetters(down=True)
    async with node(tmp_path / "v.duckdb", [Seen({3: FoldError("bad")})], dead) as live:
        with pytest.raises(FoldingStopped):
            await live.host.fold(STREAM[:5])
        assert live.store.view_seq("seen") == 2
        assert live.host.checkpoint == 0
        assert not live.host.status().ready
        dead.down = False
        await live.host.fold(STREAM[:5])
        assert seqs(live) == [1, 2, 4, 5]
        assert live.host.status().ready
        assert live.host.checkpoint == 5


async def test_the_environments_fault_stops_folding_and_later_messages_wait_for_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "FOLD_BACKOFF_S", 0.001)
    seen = Seen({2: OSError(28, "No space left on device")})
    async with node(tmp_path / "v.duckdb", [seen]) as live:
        with pytest.raises(FoldingStopped):
            await live.host.fold(STREAM[:4])
        status = live.host.status()
        assert status.stopped is not None
        assert status.since is not None
        assert live.dead.parked == []
        with pytest.raises(FoldingStopped, match="must come first"):
            await live.host.fold(STREAM[4:6])
        seen.faults.clear()
        with pytest.raises(FoldingStopped, match="must come first"):
            await live.host.fold(STREAM[4:6])
        await live.host.fold(STREAM[:6])
        assert seqs(live) == [1, 2, 3, 4, 5, 6]
        assert live.host.status().stopped is None


async def test_a_projection_with_a_bug_leaves_the_group_and_catches_up(tmp_path: Path) -> None:
    seen = Seen({3: RuntimeError("a bug of the fold")})
    async with node(tmp_path / "v.duckdb", [seen, Other()]) as live:
        await live.host.fold(STREAM[:6])
        assert live.host.laggards == ("seen",)
        assert seqs(live, "other") == list(range(1, 7))
        assert live.dead.parked == []
        assert live.host.lagging.is_set()
        assert await catch_up(live.host, source_of(STREAM)) == ("seen",)
        seen.faults.clear()
        await live.host.fold(STREAM[6:9])
        generation = live.store.generation
        assert await catch_up(live.host, source_of(STREAM)) == ()
        assert live.host.laggards == ()
        assert live.store.generation > generation
        assert seqs(live) == list(range(1, 10))
        await live.host.fold(STREAM[9:])
        assert seqs(live) == list(range(1, 13))


async def test_a_new_version_folds_from_the_start_and_rejoins(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [Seen(), Other()]) as live:
        await live.host.fold(STREAM[:8])

    class Second(Seen):
        version: ClassVar[int] = 2

    async with node(tmp_path / "v.duckdb", [Second({5: FoldError("bad")}), Other()]) as live:
        assert live.host.checkpoint == 8
        assert live.host.laggards == ("seen",)
        await live.host.fold(STREAM[8:10])
        assert seqs(live) == []
        assert await catch_up(live.host, source_of(STREAM)) == ()
        assert seqs(live) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
        assert live.dead.names() == {("seen", 2, 5)}
        assert seqs(live, "other") == list(range(1, 11))


async def test_a_projection_whose_table_was_dropped_is_folded_again(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, [Seen(), Other()]) as live:
        await live.host.fold(STREAM[:8])
    with duckdb.connect(str(path)) as con:
        con.execute("DROP TABLE seen")
    async with node(path, [Seen(), Other()]) as live:
        assert live.host.laggards == ("seen",)
        assert await catch_up(live.host, source_of(STREAM)) == ()
        assert seqs(live) == seqs(live, "other") == list(range(1, 9))


async def test_a_file_of_before_parkings_were_counted_keeps_no_new_table_in_its_log(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, [Seen()]) as live:
        await live.host.fold(STREAM[:8])
    with duckdb.connect(str(path)) as con:
        con.execute("DROP TABLE parkings")
    async with node(path, [Seen()]) as live:
        assert live.store.wal_bytes == 0
        assert live.host.laggards == ()
        assert live.host.checkpoint == 8


@pytest.mark.parametrize("table", ["checkpoint", "admitted"])
async def test_without_its_own_tables_the_host_begins_at_the_streams_beginning(tmp_path: Path, table: str) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, [Seen()]) as live:
        await live.host.fold(STREAM[:8])
    with duckdb.connect(str(path)) as con:
        con.execute(f"DROP TABLE {table}")
    async with node(path, [Seen()]) as live:
        assert live.host.checkpoint == 0
        await live.host.fold(STREAM)
        assert seqs(live) == list(range(1, 13))
        assert live.store.rows("SELECT count(*), count(DISTINCT seq) FROM admitted") == [(12, 12)]
        assert live.dead.names() == set()


async def test_invalid_identities_are_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, [Seen()]) as live:
        await live.host.fold(STREAM)
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE admitted SET content = 'ab'::BLOB WHERE seq = 5")
    with pytest.raises(ViewsDamaged, match="admitted, row 5"):
        async with node(path, [Seen()]):
            pass


async def test_listeners_hear_of_every_commit_in_order_and_waiters_wake(tmp_path: Path) -> None:
    heard: list[CommittedBatch] = []
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        unsubscribe = live.store.subscribe(heard.append)
        await live.host.fold([*STREAM[:3], at(4, vector("e1", entry_seq=1))])
        await live.host.fold(STREAM[4:6])
        unsubscribe()
        await live.host.fold(STREAM[6:])
        assert [(b.first_seq, b.last_seq, len(b.entries)) for b in heard] == [(1, 4, 3), (5, 6, 2)]
        assert [set(b.changes) for b in heard] == [
            {"journal_entries", "postings_tail", "journal_embeddings", "memory_importance"},
            {"journal_entries", "postings_tail"},
        ]
        [postings] = heard[0].changes["postings_tail"].written
        assert list(postings) == ["ws", "term", "doc", "tf", "dl"]
        written = live.store.rows("SELECT doc, term, tf FROM postings_tail WHERE doc <= 4 ORDER BY ALL")
        columns = (postings[name].tolist() for name in ("doc", "term", "tf"))
        assert sorted(zip(*columns, strict=True)) == written
        assert await live.store.wait_for(12, 0.0, "entries") == 12


async def test_only_a_waiter_that_is_not_patient_hurries_the_feed(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [Seen()]) as live:
        looked: list[bool] = []
        live.store.on_wait = lambda: looked.append(live.store.is_awaited(2, 3))
        async with asyncio.TaskGroup() as waiting:
            waiting.create_task(live.store.wait_for(2, 30.0, patient=True))
            await asyncio.sleep(0)
            assert not live.store.is_awaited(1, 9)
            waiting.create_task(live.store.wait_for(3, 30.0))
            await asyncio.sleep(0)
            assert live.store.is_awaited(2, 3)
            assert not live.store.is_awaited(4, 9)
            await live.host.fold(STREAM[:3])
        assert looked == [True]
        assert not live.store.is_awaited(1, 9)


async def test_a_failing_listener_voids_the_caches_and_stops_no_other(tmp_path: Path) -> None:
    def fails(_: CommittedBatch) -> None:
        raise RuntimeError("a bug of the cache")

    async with node(tmp_path / "v.duckdb", [Seen()]) as live:
        live.store.subscribe(fails)
        await live.host.fold(STREAM[:2])
        assert live.store.generation == 1
        assert seqs(live) == [1, 2]


async def test_what_decodes_to_nothing_is_parked_under_decode(tmp_path: Path) -> None:
    broken = at(1, entry("e1", summary=" "))
    revoked = at(2, control(TokenRevoked(token_id="nobody"), "n1"))
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold([broken, revoked, *STREAM[2:4]])
        assert live.dead.names() == {("decode", 1, 1), ("tokens", 5, 2)}
        assert live.store.rows("SELECT seq FROM journal_entries ORDER BY seq") == [(2,), (3,), (4,)]
