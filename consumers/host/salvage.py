"""Reads entries that the stream has lost from the views and from kept view files, skipping their bad blocks.

Stream and views are often damaged together. If a block of the views is bad, the views still hold all rows outside this
block. Invariant: nothing is changed, and no erased entry is written. The identities in the stream are folded into a
separate file, so that the set of lost entries does not depend on the damage of the views. Unreadable rows are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from ...schemas.catalogue import info_of
from ...schemas.core.entry import JournalEntry
from ...schemas.core.errors import CrewJournalError, Unavailable, ViewsDamaged
from ...schemas.core.ids import identity_key, is_service_id, is_workspace
from ...schemas.core.payload import SERVICE_ALONE
from ...schemas.core.sequence_set import normalised
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.rules import UPDATED
from ...schemas.entries.events import EXPLANATIONS
from ...schemas.entries.tables import ARCHIVED, ENTRIES, ENTRIES_PROJECTION
from ...schemas.settings import FREE_DISK_FLOOR_BYTES
from .admission import ADMISSION_TABLE
from .bulk import EXPLAINING, Explained, Progress, ReplaySource, explained, explained_by, fold_range, without_erased
from .host import Host
from .opening import AHEAD, DAMAGED
from .rebuild import BEFORE_LOSS, beside
from .store import ViewStore

# Reads tables of a damaged views file without its bad blocks.


T = TypeVar("T")

_GROUP_ROWS: Final = 122_880
"""Rows of a row group; for a range of row ids, DuckDB reads no other row groups."""
VECTOR_ROWS: Final = 2_048
"""Rows that DuckDB reads at once: within them, only texts of more than 4 KB may be in other blocks."""
_SAMPLES: Final = 8
"""Number of rows of an unreadable part that are tried one by one; if all fail, the other rows are in the same block (a
query takes 5 ms).
"""
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
    """Call ``read`` for parts of the rows and yield the results in order; blocking.

    Args:
        rows: Ascending row ids: a range or a list.
        read: Reads some rows; raises ``ViewsDamaged`` at a bad block.
        unreadable: Called with unreadable rows.
        least: Number of rows that are not divided further.
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
        rows: Row ids; all if absent.
    """

    def read(part: Sequence[int]) -> Any:
        return store.columns(select.format(rows="rowid BETWEEN ? AND ?"), [part[0], part[-1], *params])

    yield from read_around(rows_of(store, table, "seq") if rows is None else rows, read, unreadable)


@contextmanager
def indexed_copy(store: ViewStore, table: str, column: str, memory_mb: int) -> Iterator[ViewStore]:
    """A copy of a file with an index on a table's column; blocking, removed at the end.

    The copy has the state of the last checkpoint; later rows are in the log, which has no bad blocks.

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
        store.write_blocking(lambda _: shutil.copyfile(store.path, path))  # on the only thread that writes to the file
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


_AT_ONCE: Final = 200
"""Number of entries that are read at once with their text: 50 MB if all have the maximum size."""
_NOT_DIVIDED: Final = 32
"""Number of rows that are looked up one by one in a copy if one of them is in a bad block."""
_JSON: Final = ("payload", "refs", "supersedes")
_OF_ENTRY: Final = (
    *(name for name in JournalEntry.model_fields if name not in ("ts", "valid_at")),
    "ts_ms",
    "valid_ms",
)
"""Columns from which an entry is restored; damage in other columns does not matter."""
_IDENTITIES: Final = f"SELECT seq, k0, k1 FROM {ADMISSION_TABLE} WHERE {{rows}}"
_PLACES: Final = (
    f"SELECT rowid AS row, seq, workspace_id, id FROM {ENTRIES} WHERE {{rows}} AND seq IN (SELECT unnest(?::UBIGINT[]))"
)
_UNNAMED: Final = f"SELECT seq, workspace_id, id FROM {ENTRIES} WHERE {{rows}} AND entry_type <> ?"
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Unread:
    """Data that a salvage could not read.

    Attributes:
        sequences: Sequences of lost entries whose rows are in bad blocks in every file.
        damaged: Names of the files that have bad blocks, or cannot be opened.
    """

    sequences: set[int] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)

    def meets(self, store: ViewStore) -> None:
        """Note a file with a bad block."""
        if store.path.name not in self.damaged:
            self.damaged.append(store.path.name)


def kept_files(views: Path) -> list[Path]:
    """Kept view files next to ``views`` that may have entries missing from the stream, newest first."""
    files = [file for kind in (AHEAD, BEFORE_LOSS, DAMAGED) for file in views.parent.glob(f"{views.name}{kind}*")]
    return sorted(
        (file for file in files if file.suffix != ".wal" and file.is_file()),
        key=lambda file: file.stat().st_mtime,
        reverse=True,
    )


async def salvage(
    live: Host,
    source: ReplaySource,
    *,
    memory_mb: int,
    progress: Progress | None = None,
    unread: Unread | None = None,
) -> AsyncGenerator[tuple[bool, dict[str, Any]], None]:
    """Yield the lost entries that some view file still has, each once, first from the live views.

    Args:
        live: The live host.
        source: The stream.
        memory_mb: Memory limit of the DuckDB that the stream is folded into, MiB.
        progress: Called with the progress of reading the stream.
        unread: Receives unreadable data.

    Yields:
        Whether only the service may publish the entry, and the entry's fields for submission.

    Raises:
        Unavailable: If the disk is too full or the stream cannot be read.
    """
    unread = Unread() if unread is None else unread
    _, is_whole = await asyncio.to_thread(_explained, live.store, unread)
    needed = (
        [] if is_whole else [projection for projection in live.projections if projection.name == ENTRIES_PROJECTION]
    )
    with ExitStack() as stack:
        async with beside(live, needed, "salvage", memory_mb) as fresh:
            until = live.checkpoint  # what is folded later is in the stream, and not in the fresh views
            await fold_range(fresh.host, source, until, progress)
            stores = [live.store, *await asyncio.to_thread(_opened, kept_files(live.store.path), stack, unread)]
            known = [(await asyncio.to_thread(_explained, store, unread))[0] for store in stores]
            explains = _joined([*known, await asyncio.to_thread(explained, fresh.store)])
            seen: set[tuple[str, str]] = set()
            recovered: set[int] = set()
            for store in stores:
                lost, hard = await asyncio.to_thread(_lost, store, fresh.store, explains, unread)
                if store is live.store:
                    lost, hard = [row for row in lost if row[0] <= until], {seq for seq in hard if seq <= until}
                wanted = [row for row in lost if (row[1], row[2]) not in seen]
                readers = [
                    partial(_records, store, wanted[at : at + _AT_ONCE], hard) for at in range(0, len(wanted), _AT_ONCE)
                ]
                async for row in _rows(readers, seen):
                    recovered.add(row["seq"])
                    yield _only_of_the_service(row), submission(row)
                if not hard:
                    continue
                unread.meets(store)
                unread.sequences |= hard
                with ExitStack() as copied:
                    copy = await asyncio.to_thread(_copy, store, memory_mb, copied)
                    parts = [sorted(hard)[at : at + _AT_ONCE] for at in range(0, len(hard), _AT_ONCE)]
                    readers = [partial(_fetched, copy or store, part, explains) for part in parts]
                    async for row in _rows(readers, seen):
                        recovered.add(row["seq"])
                        yield _only_of_the_service(row), submission(row)
            unread.sequences -= recovered


async def _rows(
    readers: Sequence[Callable[[], list[dict[str, Any]]]], seen: set[tuple[str, str]]
) -> AsyncGenerator[dict[str, Any], None]:
    """The rows that the readers return, each entry once."""
    for read in readers:
        for row in await asyncio.to_thread(read):
            if (row["workspace_id"], row["id"]) not in seen:
                seen.add((row["workspace_id"], row["id"]))
                yield row


def _copy(store: ViewStore, memory_mb: int, stack: ExitStack) -> ViewStore | None:
    """An indexed copy of a file with bad blocks, removed by the stack; None if it cannot be made."""
    try:
        return stack.enter_context(indexed_copy(store, ENTRIES.name, "seq", memory_mb))
    except (CrewJournalError, OSError) as error:
        _log.warning("salvage.no_copy", file=store.path.name, error=str(error))
        return None


def _opened(paths: Sequence[Path], stack: ExitStack, unread: Unread) -> list[ViewStore]:
    """The files that can be opened; closed by the stack."""
    stores = []
    for path in paths:
        try:
            store = ViewStore(path, {"threads": 1, "access_mode": "READ_ONLY"})
            stack.callback(store.close)
            store.tables()
        except CrewJournalError as error:  # other files may have the entry
            _log.warning("salvage.file_unreadable", file=path.name, error=error.message)
            unread.damaged.append(path.name)
            continue
        stores.append(store)
    return stores


def _explained(store: ViewStore, unread: Unread) -> tuple[Explained, bool]:
    """The erasures and accepted losses in a file, and whether all of them could be read."""
    try:
        return explained(store), True
    except ViewsDamaged:
        unread.meets(store)
    try:
        tables = columns_around(store, ENTRIES.name, EXPLAINING, _nothing, params=list(EXPLANATIONS))
        rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    except ViewsDamaged:
        rows = []
    return explained_by(rows), False


def _nothing(_rows: Sequence[int]) -> None:
    return


def _joined(known: Sequence[Explained]) -> Explained:
    return Explained(
        normalised([part for gap in known for part in gap.ranges]),
        normalised([part for gap in known for part in gap.erased]),
        frozenset(chain.from_iterable(gap.erased_ids for gap in known)),
    )


def _lost(
    store: ViewStore, fresh: ViewStore, explains: Explained, unread: Unread
) -> tuple[list[tuple[int, str, str, int]], set[int]]:
    """The entries that are in a file and not in the stream.

    Args:
        store: The file.
        fresh: Views with the identities that the stream holds.
        explains: Says what was erased.
        unread: Receives the name of the file if it has bad blocks.

    Returns:
        (sequence, workspace, id, row) of each entry in stream order, and the sequences of entries whose rows are in bad
        blocks.
    """

    def unreadable(_rows: Sequence[int]) -> None:
        unread.meets(store)
        bad.append(True)

    bad: list[bool] = []
    hard: set[int] = set()
    try:
        if ENTRIES.name not in store.tables():
            return [], set()
        lost = [
            seq
            for table in columns_around(store, ADMISSION_TABLE, _IDENTITIES, unreadable)
            for seq in _not_held(fresh, table)
        ]
        if bad:
            lost += _lost_without_identity(store, fresh, unread)
        lost_entries = [
            (row["seq"], row["workspace_id"], row["id"], row["row"])
            for start in range(0, len(lost), _AT_ONCE * _AT_ONCE)
            for part in [sorted(lost[start : start + _AT_ONCE * _AT_ONCE])]
            for table in columns_around(store, ENTRIES.name, _PLACES, unreadable, params=[part])
            for row in table.to_pylist()
        ]
        if bad and ARCHIVED.name in store.tables():
            elsewhere = f"SELECT seq FROM {ARCHIVED} WHERE {{rows}}"
            archived = columns_around(store, ARCHIVED.name, elsewhere, unreadable)
            gone = {seq for table in archived for seq in table.column("seq").to_pylist()}
            hard = set(lost) - gone - {row[0] for row in lost_entries}
    except ViewsDamaged as damage:  # damage of the table descriptions
        _log.warning("salvage.file_unreadable", file=store.path.name, error=damage.message)
        unread.meets(store)
        return [], set()
    return without_erased(sorted(set(lost_entries)), explains), hard


def _not_held(fresh: ViewStore, known: Any) -> list[int]:
    """The sequences of identities (``seq, k0, k1``) that the stream does not hold."""
    with fresh.snapshot() as con:
        con.register("known", known)  # of this cursor alone, which ends with the block
        rows = con.execute(f"SELECT seq FROM known ANTI JOIN {ADMISSION_TABLE} USING (k0, k1) ORDER BY seq").fetchall()
    return [seq for (seq,) in rows]


def _lost_without_identity(store: ViewStore, fresh: ViewStore, unread: Unread) -> list[int]:
    """The sequences of lost entries whose identities are in bad blocks; identities are computed from workspace and id.

    Document writes are listed as entries of one type and have no such identity, so that type is left out.
    """
    known = {
        seq
        for table in columns_around(store, ADMISSION_TABLE, _IDENTITIES, _nothing)
        for seq in table.column("seq").to_pylist()
    }
    lost: list[int] = []
    for table in columns_around(store, ENTRIES.name, _UNNAMED, lambda _rows: unread.meets(store), params=[UPDATED]):
        rows = [row for row in table.to_pylist() if row["seq"] not in known]
        keys = [identity_key(row["workspace_id"], row["id"]) for row in rows]
        halves = [
            {
                "seq": row["seq"],
                "k0": int.from_bytes(key[:8], "little"),
                "k1": int.from_bytes(key[8:], "little"),
            }
            for row, key in zip(rows, keys, strict=True)
        ]
        if halves:
            lost += _not_held(fresh, _identities(halves))
    return lost


def _identities(rows: Sequence[Mapping[str, int]]) -> Any:
    import pyarrow as pa

    schema = pa.schema([(name, pa.uint64()) for name in ("seq", "k0", "k1")])
    return pa.Table.from_pylist(list(rows), schema=schema)


def _records(store: ViewStore, lost: Sequence[tuple[int, str, str, int]], hard: set[int]) -> list[dict[str, Any]]:
    """The rows of ``journal_entries`` of lost entries; the sequences of those that cannot be read go to ``hard``."""
    at = {row: seq for seq, _, _, row in lost}
    sql = f"SELECT {_names(store)} FROM {ENTRIES} WHERE rowid BETWEEN ? AND ? AND list_contains(?, seq) ORDER BY seq"

    def read(part: Sequence[int]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = store.columns(sql, [part[0], part[-1], [at[row] for row in part]]).to_pylist()
        return rows

    def unreadable(part: Sequence[int]) -> None:
        hard.update(at[row] for row in part)

    return [row for part in read_around(sorted(at), read, unreadable, least=_NOT_DIVIDED) for row in part]


def _fetched(copy: ViewStore, sequences: Sequence[int], explains: Explained) -> list[dict[str, Any]]:
    """The readable rows of the sequences, looked up by the index of a copy."""
    sql = f"SELECT {_names(copy)} FROM {ENTRIES} WHERE seq = ?"
    rows: list[dict[str, Any]] = []
    for seq in sequences:
        with contextlib.suppress(ViewsDamaged):
            rows += copy.columns(sql, [seq]).to_pylist()
    kept = {row[0] for row in without_erased([(row["seq"], row["workspace_id"], row["id"]) for row in rows], explains)}
    return [row for row in rows if row["seq"] in kept]


def _names(store: ViewStore) -> str:
    """The columns of an entry that this file has."""
    rows = store.rows("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [ENTRIES.name])
    known = {name for (name,) in rows}
    return ", ".join(("seq", *(name for name in _OF_ENTRY if name in known)))


def _only_of_the_service(row: Mapping[str, Any]) -> bool:
    return (
        info_of(row["entry_type"]).publisher in SERVICE_ALONE
        or is_service_id(row["id"])
        or not is_workspace(row["workspace_id"])
    )


def submission(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of ``journal_entries``, also of a former version, to an entry that can be submitted."""
    fields = {name: value for name, value in row.items() if name in JournalEntry.model_fields and value is not None}
    fields |= {name: json.loads(fields[name]) for name in _JSON if name in fields}
    if not fields.get("supersedes"):
        fields.pop("supersedes", None)
    if (valid_ms := row.get("valid_ms")) is not None:
        fields["valid_at"] = format_ms(valid_ms)
    return fields | {"ts": format_ms(row["ts_ms"])}
