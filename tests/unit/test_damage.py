"""A view file that is broken is told from one that is merely out of reach, and only the first is put aside."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.views import MEMORY_MB, file_names, node, source_of, stream_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.faults import damage_behind, describe
from crew_journal.consumers.host.opening import forget_damaged, inspect_views, open_views
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.errors import DataDirBusy, Unavailable, VerificationFailed, ViewsDamaged

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry {seq} " + "long " * 300)) for seq in range(1, 400)]
HEADER_BYTES = 12_288
BLOCK_BYTES = 262_144


def cut(keep: float) -> Callable[[Path], None]:
    """Leave only the first part of the file."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])

    return damage


def rot(path: Path, start: int = HEADER_BYTES) -> None:
    """Flip bytes in every block."""
    data, chance = bytearray(path.read_bytes()), random.Random(1)
    for offset in range(start + 64, len(data) - 64, BLOCK_BYTES // 4):
        data[offset : offset + 64] = chance.randbytes(64)
    path.write_bytes(data)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a text": lambda path: path.write_text("hello\n" * 10_000),
    "empty": lambda path: path.write_bytes(b""),
    "a cut header": cut(0.001),
    "cut in the middle": cut(0.5),
    "cut at the end": cut(0.99),
    "a rotten header": lambda path: rot(path, 0),
    "rotten everywhere": rot,
    "a directory": folder,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


async def make(path: Path, *, is_copied: bool = True) -> None:
    async with node(path, discover_projections(), is_copied=is_copied) as live:
        await live.host.fold(STREAM)


def checksum(block: bytes) -> bytes:
    """DuckDB's: so that a header can be changed as another version would write it."""
    total = 5381
    for i in range(0, len(block), 8):
        total ^= int.from_bytes(block[i : i + 8], "little") * 0xBF58476D1CE4E5B9 % 2**64
    return total.to_bytes(8, "little")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_file_that_cannot_be_opened_for_its_damage_is_put_aside(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "v.duckdb"
    await make(path)
    damage(path)
    store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream_of(STREAM))
    store.close()
    assert aside is not None
    assert aside.name.startswith("v.duckdb.damaged-")
    assert str(tmp_path) not in aside.reason
    assert file_names(tmp_path) == ["v.duckdb", aside.name]


async def test_a_file_that_duckdb_has_made_smaller_is_whole_until_somebody_cuts_it(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await make(path, is_copied=False)  # a copy has its free blocks elsewhere
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE of_an_older_version AS SELECT hash(range) AS n FROM range(1_000_000)")
    grown = path.stat().st_size
    with duckdb.connect(str(path)) as con:
        con.execute("DROP TABLE of_an_older_version")
    assert path.stat().st_size < grown - BLOCK_BYTES, "it gives free blocks at its end back"
    for _ in range(2):
        store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream_of(STREAM))
        store.close()
        assert aside is None
    cut(0.6)(path)
    store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream_of(STREAM))
    store.close()
    assert aside is not None


async def test_a_broken_log_goes_aside_with_its_file(tmp_path: Path) -> None:
    path, log = tmp_path / "v.duckdb", tmp_path / "v.duckdb.wal"
    con = duckdb.connect(str(path), config={"checkpoint_threshold": "1TB"})
    con.execute("CREATE TABLE t AS SELECT range AS n FROM range(100)")
    con.execute("CHECKPOINT")
    for _ in range(30):
        con.execute("INSERT INTO t SELECT * FROM range(100)")
    shutil.copy(log, tmp_path / "kept")
    con.close()
    data = bytearray((tmp_path / "kept").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = random.Random(1).randbytes(64)
    (tmp_path / "kept").unlink()
    path.unlink()
    with duckdb.connect(str(path)) as again:
        again.execute("CREATE TABLE t AS SELECT range AS n FROM range(100)")
    log.write_bytes(data)
    store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream_of([]))
    store.close()
    assert aside is not None
    assert file_names(tmp_path) == ["v.duckdb", aside.name, f"{aside.name}.wal"]


async def test_damaged_files_are_kept_until_the_journal_is_known_to_be_complete_and_then_the_last_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "v.duckdb"
    for _ in range(3):
        path.write_text("hello\n" * 10)
        (tmp_path / "v.duckdb.wal").write_text("log")
        store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream_of([]))
        store.close()
    assert aside is not None
    assert len(file_names(tmp_path)) == 7
    forget_damaged(path)
    assert file_names(tmp_path) == ["v.duckdb", aside.name, f"{aside.name}.wal"]


async def test_a_file_of_a_newer_duckdb_is_refused_and_left_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await make(path)
    data = bytearray(path.read_bytes())
    data[12:20] = (30_000).to_bytes(8, "little")
    data[:8] = checksum(bytes(data[8:4096]))
    path.write_bytes(data)
    with pytest.raises(Unavailable, match="version number 30000") as refused:
        open_views(path, memory_mb=MEMORY_MB, stream=stream_of(STREAM))
    assert not isinstance(refused.value, ViewsDamaged)
    assert "install the duckdb" in refused.value.hint
    assert file_names(tmp_path) == ["v.duckdb"]


@pytest.mark.parametrize(
    "said",
    [
        'Could not set lock on file "/d/v.duckdb": Conflicting lock is held',
        'Cannot open file "/d/v.duckdb": Permission denied',
        'Could not write file "/d/v.duckdb.wal": No space left on device',
        'Could not read from file "/d/v.duckdb": Input/output error',
    ],
    ids=["lock", "right", "disk full", "disk failing"],
)
def test_a_file_that_is_merely_out_of_reach_is_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "v.duckdb").write_text("whatever is in it")

    def refuse(*_: object, **__: object) -> None:
        raise duckdb.IOException(f"IO Error: {said}")

    monkeypatch.setattr(duckdb, "connect", refuse)
    with pytest.raises((Unavailable, DataDirBusy)) as refused:
        open_views(tmp_path / "v.duckdb", memory_mb=MEMORY_MB, stream=stream_of([]))
    assert not isinstance(refused.value, ViewsDamaged)
    assert "/d/" not in str(refused.value)
    assert file_names(tmp_path) == ["v.duckdb"]


async def test_damage_met_while_reading_is_reported_until_a_rebuild_has_mended_it(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await make(path)
    async with node(path, discover_projections()) as live:
        sound = live.digests()
    data, chance = bytearray(path.read_bytes()), random.Random(1)
    blocks = range(HEADER_BYTES, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES)
    for offset in blocks:  # the first that opening and starting do not read
        whole = bytes(data[offset : offset + 64])
        data[offset : offset + 64] = chance.randbytes(64)
        path.write_bytes(data)
        try:
            async with node(path, discover_projections()) as live:
                assert live.store.damage is None
                with pytest.raises(VerificationFailed, match="the views are damaged: Corrupt") as failed:
                    await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
                assert "crew-journal rebuild" in failed.value.hint
                assert str(live.store.damage) in failed.value.message
                await rebuild(live.host, source_of(STREAM), memory_mb=MEMORY_MB)
                assert live.store.damage is None
                assert live.digests() == sound
                assert all(one.equal for one in await verify(live.host, source_of(STREAM), memory_mb=MEMORY_MB))
        except ViewsDamaged:
            data[offset : offset + 64] = whole
        else:
            return
    pytest.fail("no block of the file is read by a verification alone")


def test_damage_inside_a_fold_stops_folding_and_names_no_path(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=MEMORY_MB)

    def broken(_: object) -> None:
        raise duckdb.IOException(f'IO Error: Could not read enough bytes from file "{tmp_path}/v.duckdb": attempted …')

    with pytest.raises(ViewsDamaged) as damaged:
        store.write_blocking(broken)
    assert store.damage == damaged.value.message
    with pytest.raises(ViewsDamaged):
        store.refuse_damage()
    assert str(tmp_path) not in store.damage
    stopped = Unavailable("cannot be committed")
    stopped.__cause__ = damaged.value
    assert damage_behind(stopped) is damaged.value
    assert damage_behind(Unavailable("the disk is full")) is None
    store.close()


def test_what_a_full_disk_says_names_no_path() -> None:
    error = duckdb.IOException('IO Error: Could not write file "/home/x/data/v.duckdb.wal": No space left on device')
    assert describe(error) == 'IOException: IO Error: Could not write file "v.duckdb.wal": No space left on device'
    assert describe(OSError(28, "No space left on device", "/home/x")) == "OSError: No space left on device"


async def test_looking_at_a_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await make(path)
    before = path.read_bytes()
    assert inspect_views(path) == len(STREAM)
    assert path.read_bytes() == before
    cut(0.5)(path)
    with pytest.raises(ViewsDamaged):
        inspect_views(path)
    assert file_names(tmp_path) == ["v.duckdb"]
