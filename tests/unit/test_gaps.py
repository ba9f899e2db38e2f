"""What reading does not give is counted; what explains it lies behind it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import at, control, entry
from support.views import MEMORY_MB, DeadLetters, file_names, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.bulk import ReadAccount, RebuildRefused, explained, read_through
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.consumers.host.salvage import kept_files, salvage
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.sequence_set import SequenceSet, ranges_of
from crew_journal.schemas.entries.events import ErasureScoped, LossAccepted

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry {seq}")) for seq in range(1, 31)]


@given(st.sets(st.integers(1, 30)), st.integers(1, 9), st.integers(1, 40))
async def test_every_sequence_that_a_read_does_not_give_is_counted(lost: set[int], batch: int, end: int) -> None:
    source = source_of([message for message in STREAM if message.seq not in lost], batch)
    held = {message.seq for message in STREAM} - lost
    assert await read_through(source, end) == ranges_of(set(range(1, end + 1)) - held)


def test_what_is_delivered_again_is_missing_nowhere() -> None:
    account = ReadAccount()
    expected = account.account(1, STREAM[:5])
    expected = account.account(expected, STREAM[2:8])
    assert (expected, account.missing) == (9, [])


async def test_a_sequence_is_explained_only_by_what_lies_behind_it(tmp_path: Path) -> None:
    lost = LossAccepted(loss_id="l1", lost=SequenceSet(sequences="2-40"))
    erased = ErasureScoped(erasure_id="x1", scope=SequenceSet(sequences="1", ids=("e1",)))
    messages = [*STREAM, at(31, control(lost, "d1")), at(32, control(erased, "d2", workspace="w1"))]
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        assert explained(live.store).ranges == []
        await live.host.fold(messages)
        found = explained(live.store)
    assert found.ranges == [(1, 30)], "31 and beyond may be given a second time"
    assert found.erased == [(1, 1)]
    assert found.erased_ids == {("w1", "e1")}


async def test_views_that_know_more_are_replaced_only_when_the_loss_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, discover_projections()) as live:
        await live.host.fold(STREAM)
        before = live.digests()
        source = source_of([message for message in STREAM if message.seq not in (4, 5, 30)])
        for names in (None, ["entries"], ["turns"]):
            with pytest.raises(RebuildRefused, match="3 sequences") as refused:
                await rebuild(live.host, source, memory_mb=MEMORY_MB, names=names)
            assert refused.value.lack.known == [4, 5, 30]
        assert live.digests() == before
        verified = await verify(live.host, source, memory_mb=MEMORY_MB)
        assert verified.lack.sequences == [(4, 5), (30, 30)]
        found = [one async for one in salvage(live.host, source, memory_mb=MEMORY_MB)]
        assert [(control, record["id"]) for control, record in found] == [(False, "e4"), (False, "e5"), (False, "e30")]
        done = await rebuild(live.host, source, memory_mb=MEMORY_MB, accept_loss=True)
        assert done.kept_as in file_names(tmp_path)
        assert [one.name for one in kept_files(path)] == [done.kept_as]
        assert [one async for one in salvage(live.host, source, memory_mb=MEMORY_MB)] == found, "from the kept file"
        assert live.store.rows("SELECT count(*) FROM journal_entries") == [(27,)]


async def test_a_message_that_is_another_than_it_was_is_lost_though_no_sequence_is_missing(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(STREAM)
        source = source_of([*STREAM[:9], at(10, entry("other", summary="exchanged")), *STREAM[10:]])
        with pytest.raises(RebuildRefused, match="1 entries of the views"):
            await rebuild(live.host, source, memory_mb=MEMORY_MB)
        assert (await verify(live.host, source, memory_mb=MEMORY_MB)).lack.known == [10]


async def test_rows_that_a_former_version_folded_are_read_with_the_columns_of_this_one(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(path, discover_projections()) as live:
        await live.host.fold([at(1, entry("e1"))])
    with duckdb.connect(path) as con:
        for table, column in (
            ("journal_entries", "supersedes"),
            ("journal_entries", "valid_ms"),
            ("tokens", "may_publish"),
        ):
            con.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        con.execute("UPDATE checkpoint SET version = 1 WHERE projection IN ('entries', 'tokens')")
    store = ViewStore.open(path, memory_mb=MEMORY_MB)
    host = Host(store, discover_projections(), park=DeadLetters())
    try:
        await host.open(hold="the journal is damaged")
        assert set(host.folder.held) == {"entries", "tokens"}
        assert store.rows("SELECT id, supersedes, valid_ms FROM journal_entries") == [("e1", "[]", None)]
        assert store.rows("SELECT may_publish FROM tokens") == []
    finally:
        await host.close()
        store.close()
