"""Cached by a connection for its tables: prepared inserts of Arrow columns, keys of rows, checkpoints.

Why: most of the cost of a small batch is planning. ``INSERT … SELECT`` from a registered Arrow table takes 5 ms for 25
columns and one row, ``EXECUTE`` of the prepared statement 0.7 ms (DuckDB 2.0.0). At each execution DuckDB asks the
registered object for a new Arrow stream, so one object and one plan serve every batch.

Invariant: a statement that a rollback may have removed is never used again; ``forget`` drops all of them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from ...schemas.errors import CrewJournalError
from ...schemas.views.table import R, Table
from .keys import Keys

_numbers = itertools.count()
"""Names are never used twice, so no forgotten statement can be mistaken for another."""


FEW: Final = 64
"""The most rows for which converting row by row costs less than column by column."""
KEY: Final = "key"
"""The column with a 64-bit hash of a row's name, where a table has one."""
EARLY_PLANS: Final = frozenset({0, 1, 2, 4, 8, 16, 32, 64})
PLAN_EVERY: Final = 128
"""Number of runs of an insert after which it is prepared again. Once any temporary view or table was created after the plan,
the catalogue version differs and DuckDB plans at every execution (2 ms); preparing again costs 2 ms in 128 runs."""


class CheckpointsChanged(CrewJournalError):
    """The rows of ``checkpoint`` differ from those that this connection read: other code changed them, which is a bug."""

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
        """Free what DuckDB keeps of it."""
        with contextlib.suppress(duckdb.Error):  # gone with the rollback
            con.execute(f"DEALLOCATE {self._name}")
        with contextlib.suppress(duckdb.Error):
            con.unregister(self._view)


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Converts few rows of Python values as rows: half the cost of a conversion for each of 27 columns."""
    if len(next(iter(columns.values()))) <= FEW and all(
        isinstance(column, list | tuple) for column in columns.values()
    ):
        rows = pa.array(list(zip(*columns.values(), strict=True)), pa.struct(list(schema)))
        return pa.Table.from_struct_array(rows)
    return pa.table(dict(columns), schema=schema)


class _Statements:
    """What one connection has prepared."""

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
    """Drop what the connection knows: after a rollback, and where tables are made, dropped or filled by others."""
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
    """Whether a row of ``table`` may have one of ``keys`` in its column ``key``; no is certain.

    Rows must be added to such a table through ``insert_columns``.
    """
    known = _statements_of(con).keys
    if table not in known:
        stored: Any = con.sql(f"SELECT {KEY} FROM {table}")
        known[table] = Keys(stored.to_arrow_table().column(KEY).to_numpy())
    return known[table].may_hold(keys)


def whole(con: duckdb.DuckDBPyConnection, table: Table[R]) -> list[R]:
    """All rows of a small table, remembered until ``changed`` says otherwise."""
    known = _statements_of(con).whole
    if table.name not in known:
        rows = con.execute(f"SELECT {table.names} FROM {table}").fetchall()
        known[table.name] = [table.row(*row) for row in rows]
    return known[table.name]


def changed(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> None:
    """Rows of ``tables`` may be others now."""
    known = _statements_of(con).whole
    for table in tables:
        known.pop(table, None)


def move_checkpoints(con: duckdb.DuckDBPyConnection, projections: frozenset[str], seq: int) -> None:
    """Set the checkpoints of ``projections`` to ``seq``; of all rows at once (a third of the cost) if those are all.

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
