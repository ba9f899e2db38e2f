"""Reads tables of a damaged views file around its bad blocks.

Why: one changed byte makes DuckDB refuse every query that reads its block (256 KiB). A scan reads 2,048 rows at once; of a
row that an index finds, only its segment up to the row is read (measured with 2.0.0: of 300,000 rows with one bad block,
scans read all but 2,048, an index all but 586, at 4 ms a row). Invariant: each row is read, or named as unreadable; a query
is repeated with fewer rows until it succeeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from ...schemas.errors import Unavailable, ViewsDamaged
from ...schemas.settings import FREE_DISK_FLOOR_BYTES
from .store import ViewStore

T = TypeVar("T")

_GROUP_ROWS: Final = 122_880
"""Rows of a row group; DuckDB reads none of the others for a range of row ids."""
VECTOR_ROWS: Final = 2_048
"""Rows that DuckDB reads at once: within them, only texts of more than 4 KB may be in other blocks."""
_SAMPLES: Final = 8
"""Rows of such a part that are read one by one; if none can be, the others share their block (a query takes 5 ms)."""
_ROW_COUNT: Final = (
    "SELECT coalesce(sum(count), 0)::BIGINT FROM pragma_storage_info(?) "
    "WHERE column_name = ? AND segment_type <> 'VALIDITY'"
)


def read_around(
    rows: Sequence[int],
    read: Callable[[Sequence[int]], T],
    unreadable: Callable[[Sequence[int]], object],
    *,
    least: int = 1,
) -> Iterator[T]:
    """What ``read`` returns for parts of the rows, in order; blocking.

    Args:
        rows: Ascending row ids: a range or a list.
        read: Reads some of them; raises ``ViewsDamaged`` if it meets a bad block.
        unreadable: Called with rows that cannot be read.
        least: Rows that are not divided further.
    """
    parts = [(rows[start : start + _GROUP_ROWS], False) for start in range(0, len(rows), _GROUP_ROWS)][::-1]
    while parts:
        part, sampled = parts.pop()
        try:
            yield read(part)
            continue
        except ViewsDamaged:
            pass
        if len(part) <= least:
            unreadable(part)
            continue
        if len(part) <= VECTOR_ROWS and not sampled:
            sampled = True
            if not any(_can_be_read(part[i * len(part) // _SAMPLES :][:1], read) for i in range(_SAMPLES)):
                unreadable(part)
                continue
        middle = len(part) // 2
        if len(part) > VECTOR_ROWS:
            middle = max(middle // VECTOR_ROWS, 1) * VECTOR_ROWS
        parts += [(part[middle:], sampled), (part[:middle], sampled)]


def _can_be_read(part: Sequence[int], read: Callable[[Sequence[int]], object]) -> bool:
    try:
        read(part)
    except ViewsDamaged:
        return False
    return True


def rows_of(store: ViewStore, table: str, column: str) -> range:
    """The row ids of a table; blocking.

    Raises:
        ViewsDamaged: If the description of the table is damaged.
    """
    ((count,),) = store.rows(_ROW_COUNT, [table, column])
    return range(int(count))


def columns_around(
    store: ViewStore,
    table: str,
    select: str,
    unreadable: Callable[[Sequence[int]], object],
    *,
    params: Sequence[Any] = (),
    rows: Sequence[int] | None = None,
) -> Iterator[Any]:
    """The result of a query for parts of a table's rows, as ``pyarrow.Table`` objects; blocking.

    Args:
        store: The views.
        table: The table.
        select: The query, with ``{rows}`` where the condition on row ids goes, before other parameters.
        unreadable: Called with row ids that cannot be read.
        params: Other parameters.
        rows: Which rows; all if absent.
    """

    def read(part: Sequence[int]) -> Any:
        return store.columns(select.format(rows="rowid BETWEEN ? AND ?"), [part[0], part[-1], *params])

    yield from read_around(rows_of(store, table, "seq") if rows is None else rows, read, unreadable)


@contextmanager
def indexed_copy(store: ViewStore, table: str, column: str, memory_mb: int) -> Iterator[ViewStore]:
    """A copy of a file in which rows of a table are found by an index on a column; blocking, removed at the end.

    It has what was in the file at its last checkpoint: what came later is in its log, and has no bad blocks.

    Raises:
        Unavailable: If the disk is too full.
        ViewsDamaged: If the column cannot be read.
    """
    path = store.path.with_name(f"salvage-of-{store.path.name}")
    _discard(path)
    needed = store.path.stat().st_size * 2 + FREE_DISK_FLOOR_BYTES
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise Unavailable(f"salvage needs {needed >> 20} MiB of disk, {free >> 20} are free", hint="free some disk")
    try:
        store.write_blocking(lambda _: shutil.copyfile(store.path, path))  # on the thread that alone writes to the file
        copy = ViewStore.open(path, memory_mb=memory_mb)
        try:
            copy.write_blocking(lambda con: con.execute(f'CREATE INDEX of_salvage ON "{table}" ("{column}")'))
            yield copy
        finally:
            copy.close()
    finally:
        _discard(path)


def _discard(path: Path) -> None:
    for suffix in ("", ".wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)
