"""The transaction of a batch, in which folds write rows and checkpoints.

Invariant: a projection's checkpoint is written in the transaction of its rows. The contract suite tests that a fold
uses only its own tables; this module does not check it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.core.errors import CrewJournalError
from ...schemas.core.ports import Changes, TableChanges
from ...schemas.core.table import PRESENT, Column, R, Table
from ..projection import Projection
from .faults import forget_strikes

# A set in memory that contains the keys of a table's rows, so that an upsert of new rows needs no query.


ADDED_KEPT: Final = 65_536
"""Maximum keys of the set before it is merged into the array: 5 MB; the array takes 8 bytes per key."""

U64 = npt.NDArray[np.uint64]


class Keys:
    """The 64-bit keys of one table."""

    def __init__(self, stored: U64) -> None:
        """Start with the keys of the existing rows, in any order."""
        self._stored: U64 = np.sort(stored)
        self._added: set[int] = set()

    def add(self, keys: Iterable[int]) -> None:
        """Add the keys of inserted rows."""
        self._added.update(keys)
        if len(self._added) >= ADDED_KEPT:
            added = np.sort(np.fromiter(self._added, np.uint64, len(self._added)))
            new = added[~self._among_stored(added)]
            # ``np.union1d`` of a million keys takes 1.3 s (numpy 2.4 removes duplicates by hashing), this code 0.05 s
            self._stored = np.insert(self._stored, self._stored.searchsorted(new), new)
            self._added = set()

    def may_hold(self, keys: Sequence[int]) -> bool:
        """Whether a row may have one of ``keys``; False is certain."""
        if not self._added.isdisjoint(keys):
            return True
        return bool(self._among_stored(np.array(keys, np.uint64)).any())

    def _among_stored(self, keys: U64) -> npt.NDArray[np.bool_]:
        if not len(self._stored):
            return np.zeros(len(keys), np.bool_)
        is_stored: npt.NDArray[np.bool_] = self._stored.take(self._stored.searchsorted(keys), mode="clip") == keys
        return is_stored


# Per-connection caches: prepared inserts of Arrow columns, keys of rows, checkpoints.


_numbers = itertools.count()
"""Numbers for statement names; a name is never reused, so that a dropped statement cannot be confused with a new one."""


FEW: Final = 64
"""Up to this number of rows, converting by row is faster than by column."""
KEY: Final = "key"
"""Name of the column with the 64-bit hash of a row's name, in tables that have it."""
FEW_KEYS: Final = 4
"""Up to this number of keys, a parameter for each is faster than a list: 1.2 instead of 1.8 ms for one of 20,000 keys."""
EARLY_PLANS: Final = frozenset({0, 1, 2, 4, 8, 16, 32, 64})
PLAN_EVERY: Final = 128
"""Number of runs of an insert after which it is prepared again. Creating a temporary view or table changes the
catalogue version, after which DuckDB plans an older statement at every execution (2 ms); preparing again costs 2 ms per
128 runs.
"""


class CheckpointsChanged(CrewJournalError):
    """The rows of ``checkpoint`` differ from the rows that this connection read: other code changed them, which is a bug."""

    title = "The checkpoints changed"


class _Incoming:
    """The rows that DuckDB reads in the next execution, through the Arrow PyCapsule interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = schema.empty_table()

    def __arrow_c_schema__(self) -> object:
        schema: object = self.schema.__arrow_c_schema__()
        return schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: object = self.rows.__arrow_c_stream__(requested_schema)
        return stream


class _Insert:
    """One prepared ``INSERT`` into some columns of a table."""

    def __init__(self, con: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]) -> None:
        number = next(_numbers)
        self._view, self._name = f"incoming_{number}", f"insert_{number}"
        names = ", ".join(columns)
        empty: Any = con.sql(f"SELECT {names} FROM {table} LIMIT 0")
        self._incoming = _Incoming(empty.to_arrow_table().schema)
        self._empty = self._incoming.rows
        con.register(self._view, self._incoming)
        self._plan = f"PREPARE {self._name} AS INSERT INTO {table} ({names}) SELECT {names} FROM {self._view}"
        self._runs = 0

    def run(self, con: duckdb.DuckDBPyConnection, columns: Mapping[str, Any]) -> None:
        """Append the columns, converted to the table's types."""
        self._incoming.rows = _table(columns, self._incoming.schema)
        try:
            if self._runs in EARLY_PLANS or self._runs % PLAN_EVERY == 0:
                con.execute(self._plan)
            self._runs += 1
            con.execute(f"EXECUTE {self._name}")
        finally:
            self._incoming.rows = self._empty  # frees the batch

    def drop(self, con: duckdb.DuckDBPyConnection) -> None:
        """Deallocate the statement in DuckDB."""
        with contextlib.suppress(duckdb.Error):  # the rollback removed it
            con.execute(f"DEALLOCATE {self._name}")
        with contextlib.suppress(duckdb.Error):
            con.unregister(self._view)


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Convert a few rows of Python values row by row, at half the cost of converting each of 27 columns."""
    if len(next(iter(columns.values()))) <= FEW and all(
        isinstance(column, list | tuple) for column in columns.values()
    ):
        rows = pa.array(list(zip(*columns.values(), strict=True)), pa.struct(list(schema)))
        return pa.Table.from_struct_array(rows)
    return pa.table(dict(columns), schema=schema)


class _Statements:
    """The caches of one connection."""

    def __init__(self) -> None:
        self.inserts: dict[tuple[str, ...], _Insert] = {}
        self.keys: dict[str, Keys] = {}
        self.whole: dict[str, list[Any]] = {}
        self.everyone: frozenset[str] | None = None


_prepared: Final[WeakKeyDictionary[duckdb.DuckDBPyConnection, _Statements]] = WeakKeyDictionary()


def _statements_of(con: duckdb.DuckDBPyConnection) -> _Statements:
    known = _prepared.get(con)
    if known is None:
        known = _prepared[con] = _Statements()
    return known


def forget(con: duckdb.DuckDBPyConnection) -> None:
    """Drop the connection's caches; call it after a rollback and when other code creates, drops or fills tables."""
    known = _prepared.pop(con, None)
    if known is not None:
        for insert in known.inserts.values():
            insert.drop(con)


def insert_columns(con: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Any]) -> None:
    """Append equally long columns (numpy arrays or lists) in one statement.

    ``executemany`` is 80 times slower (facts/duckdb.md).

    Raises:
        pyarrow.ArrowException: If a value does not fit its column's type.
        duckdb.Error: If DuckDB refuses the rows.
    """
    known = _statements_of(con)
    name = (table, *columns)
    insert = known.inserts.get(name)
    if insert is None:
        insert = known.inserts[name] = _Insert(con, table, tuple(columns))
    if (keys := known.keys.get(table)) is not None:
        keys.add(columns[KEY])
    insert.run(con, columns)


def may_hold(con: duckdb.DuckDBPyConnection, table: str, keys: Sequence[int]) -> bool:
    """Whether a row of ``table`` may have one of ``keys`` in its column ``key``; False is certain.

    Rows must be added to such a table by ``insert_columns``.
    """
    known = _statements_of(con).keys
    if table not in known:
        stored: Any = con.sql(f"SELECT {KEY} FROM {table}")
        known[table] = Keys(stored.to_arrow_table().column(KEY).to_numpy())
    return known[table].may_hold(keys)


def whole(con: duckdb.DuckDBPyConnection, table: Table[R]) -> list[R]:
    """All rows of a small table, cached until ``changed`` is called."""
    known = _statements_of(con).whole
    if table.name not in known:
        rows = con.execute(f"SELECT {table.names} FROM {table}").fetchall()
        known[table.name] = [table.row(*row) for row in rows]
    return known[table.name]


def changed(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> None:
    """Drop cached rows of ``tables``, because they may have changed."""
    known = _statements_of(con).whole
    for table in tables:
        known.pop(table, None)


def move_checkpoints(con: duckdb.DuckDBPyConnection, projections: frozenset[str], seq: int) -> None:
    """Set the checkpoints of ``projections`` to ``seq``; one cheaper update sets all rows if these are all projections.

    Raises:
        CheckpointsChanged: If other code added or deleted a checkpoint meanwhile; the caller rolls back.
    """
    known = _statements_of(con)
    if known.everyone is None:
        known.everyone = frozenset(name for (name,) in con.execute("SELECT projection FROM checkpoint").fetchall())
    if projections != known.everyone:
        con.execute("UPDATE checkpoint SET seq = ? WHERE projection IN (SELECT unnest(?))", [seq, sorted(projections)])
        return
    moved = con.execute("UPDATE checkpoint SET seq = ?", [seq]).fetchone()
    if moved != (len(projections),):
        raise CheckpointsChanged(f"{moved} checkpoints were moved to {seq} instead of {len(projections)}")


# Derives from the declaration of a table its DDL, the columns that an older file lacks, and the columns of its digest.


def ddl(table: Table[Any]) -> str:
    """The ``CREATE TABLE`` statement of a table."""
    return f'CREATE TABLE "{table}" ({", ".join(map(_definition, table.columns))})'


def _definition(column: Column) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}{default}"


def make(con: duckdb.DuckDBPyConnection, tables: Iterable[Table[Any]], existing: Collection[str]) -> None:
    """Create tables; a table whose name is in ``existing`` gets the columns that it lacks."""
    for table in tables:
        if table.name not in existing:
            con.execute(ddl(table))
            continue
        columns = {name for name, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()}
        for column in table.columns:
            if column.name not in columns:
                con.execute(
                    f'ALTER TABLE "{table}" ADD COLUMN {column.name} {column.type} DEFAULT {column.default or "NULL"}'
                )


def digested_parts(tables: Iterable[Table[Any]]) -> dict[Table[Any], tuple[str, ...]]:
    """Table → the names of the tables whose rows its digest covers; tables that only describe a layout are left out."""
    return {
        table: (str(table),) if table.rest is None else (str(table), str(table.rest))
        for table in tables
        if table.digested
    }


def digest_queries(tables: Iterable[Table[Any]]) -> dict[Table[Any], str]:
    """Table → the query whose rows its digest covers."""
    return {
        table: " UNION ALL ".join(f'SELECT {table.names} FROM "{part}"' for part in parts)
        for table, parts in digested_parts(tables).items()
    }


CHECKPOINT_DDL: Final = """CREATE TABLE IF NOT EXISTS checkpoint (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, seq UBIGINT NOT NULL)"""
_DDL_HINT: Final = "give every column of its tables a type that DuckDB has"


class TablesRefused(CrewJournalError):
    """DuckDB cannot create a table that a projection declares; a bug of the projection."""

    title = "A projection's tables cannot be made"


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """BEGIN and COMMIT; any error rolls back and is raised to the caller."""
    con.execute("BEGIN TRANSACTION")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a failed COMMIT has rolled back already; the first error counts
            con.execute("ROLLBACK")
        forget(con)
        raise


def arrow_table(con: duckdb.DuckDBPyConnection, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """The result of a query as a ``pyarrow.Table``: one copy, no Python objects."""
    values = dict(params) if isinstance(params, Mapping) else list(params)
    relation: Any = con.sql(sql, params=values or None)
    return relation.to_arrow_table()


class ProjectionTransaction:
    """The ``FoldTransaction`` of one projection inside the batch's transaction.

    Args:
        con: The writer's connection.
        projection: The projection.
        changes: Collects the commit's changes for the in-memory indexes.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, projection: Projection, changes: Changes | None = None) -> None:
        self._con = con
        self._tables = [table.name for table in projection.tables]
        self._changes: Changes = {} if changes is None else changes

    def insert(self, table: Table[Any], columns: Mapping[str, Any]) -> None:
        """Append rows given as equally long columns (numpy arrays or lists)."""
        changed(self._con, [table.name])
        insert_columns(self._con, table.name, columns)
        self._changes_of(table).written.append(columns)

    def add(self, table: Table[R], rows: Sequence[R]) -> None:
        """Append rows."""
        if rows:
            self.insert(table, dict(zip(table.row._fields, zip(*rows, strict=True), strict=True)))  # type: ignore[attr-defined] # a NamedTuple

    def replace(self, table: Table[R], rows: Sequence[R], former: Sequence[R] | None = None) -> None:
        """Replace the rows with the same keys."""
        if former is None:
            for row in rows:
                self._delete(table, {name: getattr(row, name) for name in table.key})
        elif former:
            key_of = attrgetter(*table.key)
            replaced = set(map(key_of, rows))
            rows = [*rows, *(row for row in former if key_of(row) not in replaced)]  # rows with the same hash
            keys = [getattr(row, KEY) for row in former]
            self.execute(f"DELETE FROM {table} WHERE {_among(table, keys)}", keys if len(keys) <= FEW_KEYS else [keys])
        self.add(table, rows)

    def delete(self, table: Table[Any], **values: Any) -> None:
        """Delete the rows that have all of these values."""
        self._delete(table, values)
        self._changes_of(table).removed.append(values)

    def _delete(self, table: Table[Any], values: Mapping[str, Any]) -> None:
        self.execute(f"DELETE FROM {table} WHERE {_equalities(values)}", list(values.values()))

    def rewrite(self, table: Table[Any], workspace_id: str, sql: str, params: Sequence[Any] = ()) -> int:
        """Run an ``UPDATE`` of many rows of one workspace; returns the number of changed rows."""
        [(count,)] = self.rows(sql, params)
        if count:
            self._changes_of(table).rewritten.add(workspace_id)
        return int(count)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Run one parametrised statement on the projection's own tables."""
        changed(self._con, self._tables)  # the statement may have changed any of them
        self._con.execute(sql, params)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read from the projection's own tables."""
        changed(self._con, self._tables)  # an UPDATE also has a result
        return self._con.execute(sql, params).fetchall()

    def get(self, table: Table[R], **values: Any) -> list[R]:
        """The rows that have all of these values."""
        rows = self.rows(f"SELECT {table.names} FROM {table} WHERE {_equalities(values)}", list(values.values()))
        return [table.row(*row) for row in rows]

    def find(self, table: Table[R], keys: Sequence[int]) -> list[R]:
        """The rows with one of ``keys`` in the column ``key``, of a table with history the current ones."""
        if not may_hold(self._con, table.name, keys):
            return []
        params = keys if len(keys) <= FEW_KEYS else [keys]
        rows = self.rows(f"SELECT {table.names} FROM {table} WHERE {_among(table, keys)}", params)
        return [table.row(*row) for row in rows]

    def whole(self, table: Table[R]) -> Sequence[R]:
        """All rows of a small table of this projection; cached until the table changes."""
        return whole(self._con, table)

    def _changes_of(self, table: Table[Any]) -> TableChanges:
        return self._changes.setdefault(table.name, TableChanges())


def _among(table: Table[Any], keys: Sequence[int]) -> str:
    among = f"{KEY} IN ({', '.join('?' * len(keys)) if len(keys) <= FEW_KEYS else 'SELECT unnest(?)'})"
    return f"{PRESENT} AND {among}" if table.keeps_history else among


def _equalities(values: Mapping[str, Any]) -> str:
    return " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in values)


def read_checkpoints(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Projection → (version, last committed sequence)."""
    rows = con.execute("SELECT projection, version, seq FROM checkpoint").fetchall()
    return {name: (version, seq) for name, version, seq in rows}


def write_checkpoints(con: duckdb.DuckDBPyConnection, names: Iterable[str], seq: int) -> None:
    """Move the checkpoints of ``names`` to ``seq``, inside the caller's transaction."""
    if moved := frozenset(names):
        move_checkpoints(con, moved, seq)


def existing_tables(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Names of the tables that the file has."""
    return frozenset(name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall())


def create_tables(con: duckdb.DuckDBPyConnection, projection: Projection, existing: Collection[str]) -> None:
    """Create the projection's tables, and add columns that tables of a former version lack.

    Args:
        con: The connection.
        projection: The projection.
        existing: Names of the tables that the file has.

    Raises:
        TablesRefused: If DuckDB cannot create one of them.
    """
    forget(con)
    try:
        make(con, projection.tables, existing)
    except duckdb.ProgrammingError as error:  # from the parser, the binder or the catalogue
        reason = str(error).splitlines()[0]
        raise TablesRefused(f"the tables of {projection.name} cannot be made: {reason}", hint=_DDL_HINT) from error


def add_checkpoints(con: duckdb.DuckDBPyConnection, projections: Iterable[Projection]) -> None:
    """Add a checkpoint row at 0 for each projection without one; one statement, because each takes 1 ms."""
    versions = {projection.name: projection.version for projection in projections}
    con.execute(
        "INSERT INTO checkpoint SELECT name, version, 0 FROM (SELECT unnest($1) AS name, unnest($2) AS version) "
        "WHERE name NOT IN (SELECT projection FROM checkpoint)",
        [list(versions), list(versions.values())],
    )


def drop_tables(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Delete the projection's rows and its checkpoint, because the same events would now give different rows."""
    forget(con)
    for table in projection.tables:
        con.execute(f'DROP TABLE IF EXISTS "{table}"')
    con.execute("DELETE FROM checkpoint WHERE projection = ?", [projection.name])
    forget_strikes(con, projection)
