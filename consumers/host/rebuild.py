"""Rebuild and verify: both fold the stream from sequence 1 into a separate file.

Invariant: readers never see a partial rebuild. A new file is filled next to the live file. Under the host's lock, while
the checkpoint cannot move, the last batch is folded into the new file; then the files are swapped, or the tables are
copied in one transaction. Earlier parkings are not published again. Views with more entries than the stream are
replaced only if an operator accepts the loss; their file is then kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import duckdb
import structlog

from ...schemas.core.errors import CrewJournalError, NotFound, Unavailable, VerificationFailed, ViewsDamaged
from ...schemas.core.sequence_set import Range, without
from ...schemas.core.table import Table, Tables
from ...schemas.settings import FREE_DISK_FLOOR_BYTES, REPLAY_BATCH_MESSAGES
from ..projection import Projection
from .admission import AdmissionView
from .bulk import Lack, Progress, ReadAccount, RebuildRefused, ReplaySource, explained, fold_range, lack_of
from .faults import PARKINGS_TABLE, REBUILD_SUFFIX, forget_strikes
from .folding import Parked
from .host import Host
from .opening import stamp
from .store import ViewStore
from .transaction import digest_queries, digested_parts, forget, read_checkpoints, transaction, write_checkpoints

# Canonical digests of a projection's rows, and the first row in which two copies differ.


_SALT: Final = "crew-journal"
_FETCH_ROWS: Final = 10_000
_VECTOR_ROWS: Final = 2_048
"""Rows that DuckDB reads at once."""
_RANGE_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of texts that are read at once; tables with texts of up to 8 KiB are not divided."""
DIFFERENCES_LISTED: Final = 100
"""Differing rows of one projection that are listed; all are counted."""
_WRITTEN_AT: Final = ("seq", "since_seq")
"""Columns with the sequence of the event that wrote a row."""
_VALUE_CHARS: Final = 200
"""Maximum characters of a value in a difference."""


class DigestedView(Protocol):
    """The declaration that a digest needs; projections and admission provide it."""

    name: ClassVar[str]
    tables: ClassVar[Tables]


@dataclass(frozen=True, slots=True)
class ViewDigest:
    """The rows of one projection.

    Attributes:
        rows: Number of rows.
        digest: 32 hex digits over all its tables.
        tables: Table → its part of the digest.
    """

    rows: int
    digest: str
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row in which two copies of a projection differ.

    Attributes:
        table: The table.
        key: Columns that name the row and their values; binary values as hex. They are the table's key, or else its
            first three columns, and the sequence of the event that wrote the row if the table has it.
        column: First column that differs, None if only one copy has the row.
        kind: ``changed``, ``only live`` or ``only fresh``.
        live: The beginning of the value in the first copy, if the value is changed.
        fresh: The beginning of the value in the second copy.
    """

    table: str
    key: Mapping[str, str]
    column: str | None
    kind: str
    live: str | None = None
    fresh: str | None = None

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.key.items())
        return f"{self.table} ({key}): {self.kind}" + (f" in {self.column}" if self.column else "")


def digest(con: duckdb.DuckDBPyConnection, view: DigestedView) -> ViewDigest:
    """The digest of a projection's rows as ``con`` sees them; in a transaction for one consistent state."""
    total = 0
    parts: dict[str, str] = {}
    for table, names in digested_parts(view.tables).items():
        rows = plain = salted = 0
        for part in names:
            for condition in _ranges(con, part):
                # HUGEINT holds 2**63 hashes exactly; the sum of UHUGEINT would be a float, which depends on the order
                sums = con.execute(
                    f"SELECT count(*), coalesce(sum(hash({table.names})::HUGEINT), 0)::VARCHAR, "
                    f'coalesce(sum(hash({table.names}, ?)::HUGEINT), 0)::VARCHAR FROM "{part}"{condition}',
                    [_SALT],
                ).fetchone()
                counted, sum_plain, sum_salted = sums or (0, "0", "0")
                rows, plain, salted = rows + counted, plain + int(sum_plain), salted + int(sum_salted)
        total += rows
        parts[table.name] = hashlib.blake2b(f"{rows} {plain} {salted}".encode(), digest_size=16).hexdigest()
    summary = " ".join(f"{table} {part}" for table, part in sorted(parts.items()))
    return ViewDigest(total, hashlib.blake2b(summary.encode(), digest_size=16).hexdigest(), parts)


def _ranges(con: duckdb.DuckDBPyConnection, part: str) -> Iterator[str]:
    """SQL conditions that divide a table into parts whose texts fit into memory; most tables need only one part.

    DuckDB reads the texts of 2,048 rows at once, 480 MB if each has 240 KB. Its statistics contain their maximum length.
    """
    [(longest, last)] = con.execute(
        "SELECT max(TRY_CAST(regexp_extract(stats::VARCHAR, 'max_string_length[^0-9]+([0-9]+)', 1) AS UBIGINT)), "
        f'(SELECT max(rowid) FROM "{part}") FROM pragma_storage_info(?)',
        [part],
    ).fetchall()
    at_once = _RANGE_BYTES // max(1, longest or 0)
    if at_once >= _VECTOR_ROWS or last is None:
        yield ""
        return
    at_once = max(1, at_once)
    for first in range(0, last + 1, at_once):
        yield f" WHERE rowid >= {first} AND rowid < {first + at_once}"


@dataclass(slots=True)
class Differences:
    """All rows in which two copies of a projection differ, counted by table and kind; the first ones are listed."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    listed: list[Difference] = field(default_factory=list)

    def add(self, difference: Difference) -> None:
        """Count a row, and list it if there is room."""
        of_table = self.counts.setdefault(difference.table, {})
        of_table[difference.kind] = of_table.get(difference.kind, 0) + 1
        if len(self.listed) < DIFFERENCES_LISTED:
            self.listed.append(difference)


def differences(live: duckdb.DuckDBPyConnection, fresh: duckdb.DuckDBPyConnection, view: DigestedView) -> Differences:
    """The rows in which two copies of a projection differ, in the order of their columns.

    Both copies are sorted and compared row by row, which takes seconds per million rows; for use after digests
    differed.
    """
    found = Differences()
    for table, query in digest_queries(view.tables).items():
        for difference in _compare(table, _sorted(live, query), _sorted(fresh, query)):
            found.add(difference)
    return found


def _sorted(con: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    cursor = con.execute(f"SELECT * FROM ({query}) ORDER BY ALL NULLS FIRST")
    while rows := cursor.fetchmany(_FETCH_ROWS):
        yield from rows


class _Rows:
    """Sorted rows with the current one and the one after it; None at the end."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._rows = rows
        self.row, self.ahead = next(rows, None), next(rows, None)

    def advance(self) -> None:
        """Go on by one row."""
        self.row, self.ahead = self.ahead, next(self._rows, None)


def _compare(
    table: Table[Any], live_rows: Iterator[tuple[Any, ...]], fresh_rows: Iterator[tuple[Any, ...]]
) -> Iterator[Difference]:
    """The differing rows of two sorted copies."""
    columns = [column.name for column in table.columns]
    naming = dict.fromkeys((*(table.key or columns[:3]), *(name for name in _WRITTEN_AT if name in columns)))
    places = {name: columns.index(name) for name in naming}

    def only(row: Sequence[Any], kind: str) -> Difference:
        return Difference(table.name, key_of(row), None, kind)

    def key_of(row: Sequence[Any]) -> dict[str, str]:
        return {name: _value_text(row[place]) for name, place in places.items()}

    live, fresh = _Rows(live_rows), _Rows(fresh_rows)
    while live.row is not None or fresh.row is not None:
        if live.row == fresh.row:
            live.advance()
            fresh.advance()
        elif live.row is None or fresh.row is None:
            extra, kind = (fresh, "only fresh") if live.row is None else (live, "only live")
            yield only(extra.row or (), kind)
            extra.advance()
        else:
            at = next(i for i, pair in enumerate(zip(live.row, fresh.row, strict=True)) if pair[0] != pair[1])
            # rows that agree in no leading column, or whose neighbour already matches, are not one changed row
            live_first = at == 0 and fresh.ahead != live.row and _order(live.row[0]) < _order(fresh.row[0])
            if live.ahead == fresh.row or live_first:
                yield only(live.row, "only live")
                live.advance()
            elif fresh.ahead == live.row or at == 0:
                yield only(fresh.row, "only fresh")
                fresh.advance()
            else:
                values = _value_text(live.row[at]), _value_text(fresh.row[at])
                yield Difference(table.name, key_of(live.row), columns[at], "changed", *values)
                live.advance()
                fresh.advance()


def _order(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _value_text(value: Any) -> str:
    return (value.hex() if isinstance(value, bytes) else str(value))[:_VALUE_CHARS]


_SUFFIX: Final = {"rebuild": REBUILD_SUFFIX, "verify": ".verify", "salvage": ".salvage"}
APART_FROM: Final = 20_000
"""Messages from which a rebuild folds in a process of its own: fewer take less time than the process takes to start."""
BEFORE_LOSS: Final = ".before-loss-"
"""Marks the name of a replaced view file that had more events than the stream."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        projections: Names of the replaced views.
        seq: Their checkpoint.
        parked: Number of messages that could not be folded.
        failed: View whose rebuild failed → reason; such a view is unchanged.
        lack: Entries of the former views that the stream lacks, accepted as lost; None if the stream lacks nothing.
        kept_as: New name of the former views' file.
    """

    projections: tuple[str, ...]
    seq: int
    parked: int
    failed: Mapping[str, str] = field(default_factory=dict)
    lack: Lack | None = None
    kept_as: str | None = None


@dataclass(frozen=True, slots=True)
class FoldedApart:
    """What another process has folded into a new file.

    Attributes:
        missing: Sequences that it did not find in the stream.
        parked: Number of messages that could not be folded.
    """

    missing: Sequence[Range]
    parked: int


FoldApart = Callable[[Path, Sequence[str], int, Progress | None], Awaitable[FoldedApart | None]]
"""Folds projections up to a sequence into a new file in another process; None if that failed."""


class ViewNotRebuilt(CrewJournalError):
    """A working view cannot be folded again, so the views are not replaced."""

    title = "A view cannot be rebuilt"


@dataclass(frozen=True, slots=True)
class Verified:
    """Comparison of a live projection with a fresh one.

    Attributes:
        projection: Its name.
        seq: Checkpoint of both.
        equal: Whether the digests agree.
        live: Digest of the live rows.
        fresh: Digest of the rebuilt rows.
        differences: The first rows that differ.
        differing: Table → kind → number of all rows that differ.
    """

    projection: str
    seq: int
    equal: bool
    live: ViewDigest
    fresh: ViewDigest
    differences: tuple[Difference, ...] = ()
    differing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Verification(list[Verified]):
    """The comparison of each view, and what the stream lacks."""

    def __init__(self, views: Iterable[Verified], lack: Lack) -> None:
        super().__init__(views)
        self.lack = lack


class Fresh:
    """A separate store and host next to the live ones."""

    def __init__(self, store: ViewStore, host: Host, parked: list[Parked]) -> None:
        self.store = store
        self.host = host
        self.parked = parked


@asynccontextmanager
async def beside(
    live: Host,
    projections: Sequence[Projection],
    kind: str,
    memory_mb: int,
    fill: Callable[[Path], Awaitable[None]] | None = None,
) -> AsyncIterator[Fresh]:
    """A store next to the live one, and a host with copies of the projections; both are deleted at the end.

    Args:
        live: The live host.
        projections: Of the new store.
        kind: The operation that needs it.
        memory_mb: Memory limit of the second DuckDB, MiB.
        fill: Makes the file; without it, the store is empty.

    Raises:
        Unavailable: If the disk is too full.
    """
    path = live.store.path.with_name(live.store.path.name + _SUFFIX.get(kind, f".{kind}"))
    _discard(path)
    needed = live.store.path.stat().st_size + live.store.wal_bytes + FREE_DISK_FLOOR_BYTES
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise Unavailable(f"{kind} needs {needed >> 20} MiB of disk, {free >> 20} are free", hint="free some disk")
    parked: list[Parked] = []

    async def collect(refused: Parked) -> None:
        parked.append(refused)

    try:
        if fill is not None:
            await fill(path)
        store = ViewStore.open(path, memory_mb=memory_mb)
    except BaseException:
        _discard(path)
        raise
    twins = [type(projection)() for projection in projections]
    host = Host(store, twins, park=collect, housekeeping=False, replays=True)
    try:
        await host.open()
        if (known := live.store.stamp) is not None:  # known without the live file, which may be damaged
            await store.write(lambda con: stamp(con, known))
        yield Fresh(store, host, parked)
    finally:
        await host.close()
        store.close()
        _discard(path)


def _discard(path: Path) -> None:
    for suffix in ("", ".wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)


def _chosen(live: Host, names: Collection[str] | None) -> list[Projection]:
    if names is None:
        return list(live.projections)
    known = {projection.name: projection for projection in live.projections}
    if unknown := sorted(set(names) - set(known)):
        raise NotFound(f"no projection is called {unknown[0]}", hint=f"one of {', '.join(sorted(known))}")
    return [projection for projection in live.projections if projection.name in names]


async def rebuild(
    live: Host,
    source: ReplaySource,
    *,
    memory_mb: int,
    names: Collection[str] | None = None,
    accept_loss: bool = False,
    progress: Progress | None = None,
    apart: FoldApart | None = None,
) -> Rebuilt:
    """Build views again from the stream and replace the live views.

    Args:
        live: The live host; its feed and its readers continue.
        source: The stream.
        memory_mb: Memory limit of the second DuckDB, MiB.
        names: Projections to rebuild; None for all, identities included.
        accept_loss: Whether to replace views that have more entries than the stream, and keep their file; only if all
            are rebuilt.
        progress: Called with how far the replay is.
        apart: Folds a long stream in another process, so that this one has time for requests.

    A projection whose rebuild fails stays unchanged and is named in the result.

    Raises:
        NotFound: If there is no projection with a given name.
        JournalDamaged: If sequences or entries of the views are missing from the stream without an explanation, and the
            loss is not accepted.
        ViewNotRebuilt: If all views are to be replaced and a working view cannot be rebuilt.
        Unavailable: If the disk is too full or the stream cannot be read; the live views are then unchanged.
    """
    chosen = _chosen(live, names)
    account = ReadAccount()
    counted = account.counted(source)
    kept_as: str | None = None
    parked = 0

    async def fill(path: Path) -> None:
        nonlocal parked
        if apart is None or live.checkpoint < APART_FROM:
            return
        folded = await apart(path, [projection.name for projection in chosen], live.checkpoint, progress)
        if folded is None:  # it is folded here
            _discard(path)
        else:
            account.add(folded.missing)
            parked = folded.parked

    async with beside(live, chosen, "rebuild", memory_mb, fill) as fresh:
        while live.checkpoint - fresh.host.checkpoint > REPLAY_BATCH_MESSAGES:
            await fold_range(fresh.host, counted, live.checkpoint, progress)
        async with live.paused():
            seq = live.checkpoint
            await fold_range(fresh.host, counted, seq, progress)
            lack = await asyncio.to_thread(_lack, live, fresh, account)
            if lack and not accept_loss:
                raise RebuildRefused(lack)
            await fresh.host.close()
            fresh.store.close()
            failed = {name: suspension.reason for name, suspension in fresh.host.folder.suspended.items()}
            built = [projection for projection in chosen if projection.name not in failed]
            if names is None:
                _refuse_if_worse(live, failed)
                if lack:
                    kept_as = f"{live.store.path.name}{BEFORE_LOSS}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
                await live.store.swap(fresh.store.path, keep_as=kept_as)
            else:
                await live.store.write(lambda con: _copy(con, fresh.store.path, built, seq))
                live.store.invalidate()
            live.folder.rejoin(projection.name for projection in built)
            await live.reload()
    parked += len(fresh.parked)
    _log.info("rebuilt", projections=[p.name for p in built], seq=seq, parked=parked, failed=failed)
    return Rebuilt(tuple(p.name for p in built), seq, parked, failed, lack or None, kept_as)


def _lack(live: Host, fresh: Fresh, account: ReadAccount) -> Lack:
    """The entries of the live views that the stream lacks; only the missing sequences if the views cannot be read."""
    try:
        return lack_of(live.store, fresh.store, account.missing, explained(live.store))
    except ViewsDamaged:  # the views cannot be read; the rebuild repairs them
        return Lack(without(account.missing, explained(fresh.store).ranges), [], [])


def _refuse_if_worse(live: Host, failed: Mapping[str, str]) -> None:
    """Refuse the swap if a working view cannot be rebuilt, because its rows would be lost."""
    worse = sorted(set(failed) - set(live.folder.suspended))
    if worse:
        raise ViewNotRebuilt(
            f"{worse[0]} works, but cannot be folded again: {failed[worse[0]]}; all views are as they were",
            hint="give a fixed projection a new version; or name the other views to rebuild them alone",
        )


def _copy(con: duckdb.DuckDBPyConnection, path: Path, projections: Sequence[Projection], seq: int) -> None:
    quoted = str(path).replace("'", "''")
    con.execute(f"ATTACH '{quoted}' AS fresh (READ_ONLY)")
    try:
        with transaction(con):
            for projection in projections:
                for table in projection.tables:
                    con.execute(f'DELETE FROM "{table}"')
                    con.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM fresh."{table}"')
                forget_strikes(con, projection)
                con.execute(
                    f"INSERT INTO {PARKINGS_TABLE} SELECT * FROM fresh.{PARKINGS_TABLE} WHERE projection = ?",
                    [projection.name],
                )
            write_checkpoints(con, [projection.name for projection in projections], seq)
    finally:
        forget(con)  # rows were added whose keys the connection does not know
        con.execute("DETACH fresh")


async def verify(live: Host, source: ReplaySource, *, memory_mb: int, progress: Progress | None = None) -> Verification:
    """Compare every live view with a fresh rebuild, at the live view's checkpoint at the time of the call.

    The live digests are computed in one snapshot, so that writes can continue. If a digest differs, the two are
    compared again at the live checkpoint, under the host's lock, to find the differing rows; that comparison counts.

    Args:
        live: The live host.
        source: The stream.
        memory_mb: Memory limit of the second DuckDB, MiB.
        progress: Called with how far the replay is.

    Returns:
        The comparison of each view, and what the stream lacks.

    Raises:
        VerificationFailed: If the live views are damaged, so that there is nothing to compare.
        Unavailable: If the disk is too full or the stream cannot be read.
    """
    try:
        snapshot = await asyncio.to_thread(_digests, live, (AdmissionView(), *live.projections))
    except ViewsDamaged as damage:
        raise VerificationFailed(damage.message, hint=damage.hint) from damage
    results: list[Verified] = []
    account = ReadAccount()
    source = account.counted(source)
    async with beside(live, live.projections, "verify", memory_mb) as fresh:
        twins: dict[str, DigestedView] = {p.name: p for p in fresh.host.projections}
        twins[AdmissionView.name] = AdmissionView()
        for seq in sorted({at for at, _ in snapshot.values()}):
            await fold_range(fresh.host, source, seq, progress)
            for name in sorted(name for name, (at, _) in snapshot.items() if at == seq):
                live_digest, twin = snapshot[name][1], twins[name]
                fresh_digest = await asyncio.to_thread(_digest, fresh.store, twin)
                results.append(
                    Verified(name, seq, live_digest.digest == fresh_digest.digest, live_digest, fresh_digest)
                )
        if all(result.equal for result in results):
            missing = without(account.missing, explained(live.store).ranges)
            return Verification(results, Lack(missing, [], []))  # identities are compared with the tables
        async with live.paused():
            await fold_range(fresh.host, source, live.checkpoint, progress)
            lack = await asyncio.to_thread(_lack, live, fresh, account)
            differing = [
                result
                if result.equal
                else await asyncio.to_thread(_with_difference, live, fresh, twins[result.projection], result)
                for result in results
            ]
            return Verification(differing, lack)


def _digest(store: ViewStore, view: DigestedView) -> ViewDigest:
    with store.snapshot() as con:
        return digest(con, view)


def _with_difference(live: Host, fresh: Fresh, view: DigestedView, result: Verified) -> Verified:
    if live.store.view_seq(view.name) != fresh.store.view_seq(view.name):
        return result  # a projection that is behind: its rows of that time are gone, and the fresh rows are ahead
    with live.store.snapshot() as live_views, fresh.store.snapshot() as fresh_views:
        found = differences(live_views, fresh_views, view)
        if found.listed:
            return Verified(
                result.projection, result.seq, False, result.live, result.fresh, tuple(found.listed), found.counts
            )
        # the copies are equal now: a later event removed the difference
        at, live_digest, fresh_digest = (
            live.store.view_seq(view.name),
            digest(live_views, view),
            digest(fresh_views, view),
        )
        return Verified(result.projection, at, live_digest.digest == fresh_digest.digest, live_digest, fresh_digest)


def _digests(live: Host, views: Sequence[DigestedView]) -> dict[str, tuple[int, ViewDigest]]:
    with live.store.snapshot() as con:
        at = read_checkpoints(con)
        return {view.name: (at[view.name][1], digest(con, view)) for view in views}
