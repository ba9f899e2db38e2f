"""A salvage reads around the bad blocks of the views: every row that DuckDB can still read, and the number of the others."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damages import spoil_column
from support.events import at, entry
from support.views import MEMORY_MB, file_names, node, source_of

from crew_journal.consumers.entries.fold import EntriesProjection
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.opening import DAMAGED
from crew_journal.consumers.host.rebuild import BEFORE_LOSS
from crew_journal.consumers.host.salvage import VECTOR_ROWS, Unread, read_around, salvage
from crew_journal.schemas.core.errors import ViewsDamaged

COUNT = 3_000
LOST = range(1_501, 2_301)
"""Sequences of the block of the stream that is gone."""


def _stream() -> list[RawMessage]:
    chance = random.Random(3)
    return [at(n, entry(f"e{n}", summary=f"entry {n} {chance.randbytes(150).hex()}")) for n in range(1, COUNT + 1)]


@pytest.fixture(scope="module")
async def folded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RawMessage]]:
    """Sound views of a stream, and the stream."""
    path, stream = tmp_path_factory.mktemp("views") / "v.duckdb", _stream()
    async with node(path, [EntriesProjection()]) as live:
        await live.host.fold(stream)
        await live.store.checkpoint()
    return path, stream


def _copy(folded: tuple[Path, list[RawMessage]], folder: Path) -> tuple[Path, list[RawMessage]]:
    path = folder / "v.duckdb"
    path.write_bytes(folded[0].read_bytes())
    return path, [message for message in folded[1] if message.seq not in LOST]


async def _salvaged(path: Path, rest: Sequence[RawMessage]) -> tuple[dict[str, Any], Unread]:
    unread = Unread()
    async with node(path, [EntriesProjection()]) as live:
        made = salvage(live.host, source_of(list(rest)), memory_mb=MEMORY_MB, unread=unread)
        found = {record["id"]: record async for _, record in made}
    return found, unread


async def _aside(path: Path, rest: Sequence[RawMessage]) -> Path:
    """Put damaged views aside and fold the stream again, as a start does; returns the path of the former."""
    kept = path.with_name(f"v.duckdb{DAMAGED}20270101T000000Z")
    await asyncio.to_thread(path.rename, kept)
    async with node(path, [EntriesProjection()]) as live:
        await live.host.fold(rest)
    return kept


def _plain(path: Path) -> set[str]:
    """The lost entries that plain DuckDB reads, 2,048 rows at a time."""
    found: set[str] = set()
    sql = "SELECT seq, id, summary, payload, refs FROM journal_entries WHERE rowid >= ? AND rowid < ?"
    for start in range(0, COUNT, VECTOR_ROWS):
        with contextlib.suppress(duckdb.Error), duckdb.connect(str(path), read_only=True) as con:
            found |= {row[1] for row in con.execute(sql, [start, start + VECTOR_ROWS]).fetchall() if row[0] in LOST}
    return found


@pytest.mark.parametrize("column", ["summary", pytest.param("id", marks=pytest.mark.nightly)])
async def test_every_lost_entry_that_can_be_read_is_salvaged_and_the_others_are_counted(
    folded: tuple[Path, list[RawMessage]], tmp_path: Path, column: str
) -> None:
    path, rest = _copy(folded, tmp_path)
    whole, _ = await _salvaged(path, rest)
    assert whole.keys() == {f"e{n}" for n in LOST}
    spoil_column(path, "journal_entries", column, 0.0)
    readable = _plain(path)
    assert len(readable) < len(LOST)
    found, unread = await _salvaged(path, rest)
    assert found.keys() >= readable
    assert column == "id" or len(found) > len(readable), "by an index, more can be read than by scans"
    assert all(whole[name] == record for name, record in found.items())
    assert len(found) + len(unread.sequences) == len(LOST)
    assert unread.sequences.isdisjoint(int(name[1:]) for name in found)
    assert unread.damaged == ["v.duckdb"]


async def test_damage_of_columns_outside_entries_loses_no_entry(
    folded: tuple[Path, list[RawMessage]], tmp_path: Path
) -> None:
    path, rest = _copy(folded, tmp_path)
    spoil_column(path, "admitted", "content")
    await _aside(path, rest)
    found, unread = await _salvaged(path, rest)
    assert found.keys() == {f"e{n}" for n in LOST}
    assert not unread.sequences


async def test_identities_in_bad_blocks_are_computed_from_workspace_and_id(
    folded: tuple[Path, list[RawMessage]], tmp_path: Path
) -> None:
    path, rest = _copy(folded, tmp_path)
    spoil_column(path, "admitted", "k0", 0.0)
    await _aside(path, rest)
    found, unread = await _salvaged(path, rest)
    assert found.keys() == {f"e{n}" for n in LOST}
    assert not unread.sequences


async def test_damaged_files_that_were_put_aside_are_read_around_their_bad_blocks(
    folded: tuple[Path, list[RawMessage]], tmp_path: Path
) -> None:
    path, rest = _copy(folded, tmp_path)
    spoil_column(path, "journal_entries", "summary", 0.0)
    kept = await _aside(path, rest)
    found, unread = await _salvaged(path, rest)
    assert 0 < len(found) < len(LOST)
    assert not [name for name in file_names(tmp_path) if name.startswith("salvage-of-")]
    assert len(found) + len(unread.sequences) == len(LOST)
    assert unread.damaged == [kept.name]
    other = path.with_name(f"v.duckdb{BEFORE_LOSS}20260101T000000Z")
    other.write_bytes(folded[0].read_bytes())
    found, unread = await _salvaged(path, rest)
    assert found.keys() == {f"e{n}" for n in LOST}, "what one file cannot give, another does"
    assert not unread.sequences


async def test_a_file_that_cannot_be_opened_is_named_and_the_others_are_read(
    folded: tuple[Path, list[RawMessage]], tmp_path: Path
) -> None:
    path, rest = _copy(folded, tmp_path)
    path.with_name(f"v.duckdb{DAMAGED}20270101T000000Z").write_bytes(b"hello" * 10_000)
    found, unread = await _salvaged(path, rest)
    assert len(found) == len(LOST)
    assert unread.damaged == [f"v.duckdb{DAMAGED}20270101T000000Z"]


@given(
    st.integers(0, 3 * VECTOR_ROWS).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(n - 1, 0)), max_size=9))
    )
)
def test_rows_are_read_or_named_each_once(case: tuple[int, set[int]]) -> None:
    count, bad = case

    def read(part: Sequence[int]) -> list[int]:
        if not bad.isdisjoint(part):
            raise ViewsDamaged("bad")
        return list(part)

    unread: list[int] = []
    found: Iterator[list[int]] = read_around(range(count), read, unread.extend)
    rows = [row for part in found for row in part]
    assert rows == sorted(rows)
    assert sorted(rows + unread) == list(range(count))
    assert set(unread) == bad & set(range(count)), "a part of which some rows can be read is read row by row"
