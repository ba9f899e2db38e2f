"""Damages of a journal's files on disk, each a name and what it does to a data directory that nobody has open."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

VIEWS = "views.duckdb"
FILE_HEADER_BYTES = 12_288
BLOCK_BYTES = 262_144
BLOCKS = 3
"""Block files of the stream that a damaged journal has at least."""


@dataclass(frozen=True)
class Damage:
    """What happens to the files."""

    name: str
    do: Callable[[Path], object]

    def __str__(self) -> str:
        return self.name


def stream(data_dir: Path) -> Path:
    """The folder of JOURNAL."""
    return next(path for path in data_dir.rglob("streams/JOURNAL") if path.is_dir())


def blocks(data_dir: Path) -> list[Path]:
    """Its block files, oldest first."""
    return sorted(stream(data_dir).glob("msgs/*.blk"), key=lambda path: int(path.stem))


def flip(path: Path, at: float, count: int = 1) -> None:
    """Change bytes in place, beginning at a share of the file."""
    data = bytearray(path.read_bytes())
    start = min(int(len(data) * at), len(data) - 1)
    for place in range(start, min(start + count, len(data))):
        data[place] ^= 0x5A
    path.write_bytes(data)


def spoil_column(path: Path, table: str, column: str, at: float = 0.5) -> None:
    """Change one byte of the block that holds a column's rows at a share of the table; the file must be closed."""
    with duckdb.connect(str(path), read_only=True) as con:
        found = con.execute(
            "SELECT block_id FROM pragma_storage_info(?) WHERE column_name = ? AND segment_type <> 'VALIDITY' "
            "AND block_id IS NOT NULL ORDER BY row_group_id, segment_id",
            [table, column],
        ).fetchall()
    (block,) = found[min(int(len(found) * at), len(found) - 1)]
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + block * BLOCK_BYTES + BLOCK_BYTES // 2] ^= 0x5A
    path.write_bytes(data)


def spoil_long_text(path: Path, table: str, column: str, at: float = 0.5) -> None:
    """Change one byte of the blocks that one long text of a column has to itself; the file must be closed."""
    with duckdb.connect(str(path), read_only=True) as con:
        sql = "SELECT unnest(additional_block_ids) FROM pragma_storage_info(?) WHERE column_name = ?"
        found = [block for (block,) in con.execute(sql, [table, column]).fetchall()]
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + found[int(len(found) * at)] * BLOCK_BYTES + BLOCK_BYTES // 2] ^= 0x5A
    path.write_bytes(data)


def cut(path: Path, at: float) -> None:
    """Keep only a share of the file."""
    os.truncate(path, int(path.stat().st_size * at))


def exchange(one: Path, other: Path) -> None:
    """Give each the name of the other."""
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def without_index(do: Callable[[Path], object]) -> Callable[[Path], object]:
    """The same after the server has lost its index, as after a kill: it then reads every block."""

    def both(data_dir: Path) -> None:
        (stream(data_dir) / "msgs" / "index.db").unlink()
        do(data_dir)

    return both


def _of_blocks() -> Iterator[Damage]:
    places = {"first": 0, "middle": 1, "last": -1}
    for name, place in places.items():
        kinds: dict[str, Callable[[Path], object]] = {
            "removed": lambda d, p=place: blocks(d)[p].unlink(),
            "cut": lambda d, p=place: cut(blocks(d)[p], 0.5),
            "flipped": lambda d, p=place: flip(blocks(d)[p], 0.5),
        }
        for kind, do in kinds.items():
            yield Damage(f"{name} block {kind}", do)
            yield Damage(f"{name} block {kind}, no index", without_index(do))
    yield Damage("first byte of a block flipped", lambda d: flip(blocks(d)[1], 0.0))
    yield Damage("header of a record flipped", lambda d: flip(blocks(d)[1], 0.0, 22))
    yield Damage("a thousand bytes flipped", lambda d: flip(blocks(d)[0], 0.3, 1_000))
    yield Damage("last byte of a block flipped", lambda d: flip(blocks(d)[1], 1.0))
    yield Damage("last byte of the last block flipped", lambda d: flip(blocks(d)[-1], 1.0))
    yield Damage("a block emptied", lambda d: cut(blocks(d)[1], 0.0))
    yield Damage("two blocks exchanged", lambda d: exchange(*blocks(d)[:2]))
    yield Damage("two blocks exchanged, no index", without_index(lambda d: exchange(*blocks(d)[:2])))
    yield Damage("the last two blocks exchanged", lambda d: exchange(*blocks(d)[-2:]))
    yield Damage("a block in place of another", lambda d: shutil.copy(blocks(d)[0], blocks(d)[1]))
    yield Damage("every block removed", lambda d: [block.unlink() for block in blocks(d)])
    yield Damage("every block removed, no index", without_index(lambda d: [block.unlink() for block in blocks(d)]))


def _of_metadata() -> Iterator[Damage]:
    for name in ("msgs/index.db", "meta.inf", "meta.sum"):
        yield Damage(f"{name} removed", lambda d, n=name: (stream(d) / n).unlink())
        yield Damage(f"{name} flipped", lambda d, n=name: flip(stream(d) / n, 0.5))
    yield Damage("msgs/index.db emptied", lambda d: cut(stream(d) / "msgs" / "index.db", 0.0))
    yield Damage("meta.inf emptied", lambda d: cut(stream(d) / "meta.inf", 0.0))
    yield Damage("meta.inf removed and the last block cut", lambda d: _meta_and_end(d))
    yield Damage("folder of messages removed", lambda d: shutil.rmtree(stream(d) / "msgs"))
    yield Damage("folder of the stream removed", lambda d: shutil.rmtree(stream(d)))
    yield Damage("folder of consumers removed", lambda d: shutil.rmtree(stream(d) / "obs"))


def _meta_and_end(data_dir: Path) -> None:
    (stream(data_dir) / "meta.inf").unlink()
    (stream(data_dir) / "msgs" / "index.db").unlink()
    cut(blocks(data_dir)[-1], 0.5)


STREAM_DAMAGES: Sequence[Damage] = (*_of_blocks(), *_of_metadata())
"""Damages of the files of the stream, 40 at least."""


def _of_views() -> Iterator[Damage]:
    chance = random.Random(11)
    for number in range(14):
        at = chance.random()
        yield Damage(f"views flipped {number}", lambda d, at=at: flip(d / VIEWS, at))
    for number, at in enumerate((0.0, 0.0001, 0.0003)):
        yield Damage(f"header of the views flipped {number}", lambda d, at=at: flip(d / VIEWS, at, 64))
    yield Damage("views flipped everywhere", lambda d: [flip(d / VIEWS, part / 50, 64) for part in range(1, 50)])
    for at in (0.0, 0.001, 0.3, 0.7, 0.99):
        yield Damage(f"views cut at {at}", lambda d, at=at: cut(d / VIEWS, at))
    yield Damage("views removed", lambda d: (d / VIEWS).unlink())
    yield Damage("views are text", lambda d: (d / VIEWS).write_text("views\n" * 5_000))
    yield Damage("views are a folder", lambda d: ((d / VIEWS).unlink(), (d / VIEWS).mkdir()))
    for number in range(6):
        at = chance.random()
        yield Damage(f"log flipped {number}", lambda d, at=at: flip(wal(d), at))
    yield Damage("head of the log flipped", lambda d: flip(wal(d), 0.0, 32))
    for at in (0.0, 0.2, 0.5, 0.9):
        yield Damage(f"log cut at {at}", lambda d, at=at: cut(wal(d), at))
    yield Damage("log removed", lambda d: wal(d).unlink())
    yield Damage("views removed, log there", lambda d: (d / VIEWS).unlink())
    yield Damage("views and log removed", lambda d: ((d / VIEWS).unlink(), wal(d).unlink()))


def wal(data_dir: Path) -> Path:
    """The write-ahead log of the views, as a node that was killed leaves it."""
    return data_dir / f"{VIEWS}.wal"


VIEWS_DAMAGES: Sequence[Damage] = tuple(_of_views())
"""40 damages of the file of the views and its log."""
