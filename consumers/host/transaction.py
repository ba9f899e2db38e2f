"""The transaction of a batch, in which folds write rows and checkpoints.

Invariant: a projection's checkpoint is written in the transaction of its rows. That a fold reads and writes only its own
tables is proven by the contract suite, not checked here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final

import duckdb

from ...schemas.errors import CrewJournalError
from ...schemas.ports import Changes, TableChanges
from ...schemas.views.table import R, Table
from ..projection import Projection
from .leniency import forget_strikes
from .statements import (
    KEY,
    changed,
    forget,
    insert_columns,
    may_hold,
    move_checkpoints,
    whole,
)
from .tables import make

__all__ = [
    "CHECKPOINT_DDL",
    "ProjectionTransaction",
    "TablesRefused",
    "arrow_table",
    "create_tables",
    "drop_tables",
    "existing_tables",
    "insert_columns",
    "read_checkpoints",
    "transaction",
    "write_checkpoints",
]

CHECKPOINT_DDL: Final = """CREATE TABLE IF NOT EXISTS checkpoint (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, seq UBIGINT NOT NULL)"""
_DDL_HINT: Final = "give every column of its tables a type that DuckDB has"


class TablesRefused(CrewJournalError):
    """DuckDB cannot make a table that a projection declares: a bug of the projection."""

    title = "A projection's tables cannot be made"


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """BEGIN … COMMIT; any error rolls back and goes on to the caller."""
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
        projection: Who folds.
        changes: Takes what hot indexes are to learn of the commit.
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
        """Put rows in the place of those with the same key."""
        if former is None:
            for row in rows:
                self._delete(table, {name: getattr(row, name) for name in table.key})
        elif former:
            key_of = attrgetter(*table.key)
            replaced = set(map(key_of, rows))
            rows = [*rows, *(row for row in former if key_of(row) not in replaced)]  # of the same hash
            keys = [getattr(row, KEY) for row in former]
            self.execute(f"DELETE FROM {table} WHERE {KEY} IN (SELECT unnest(?))", [keys])
        self.add(table, rows)

    def delete(self, table: Table[Any], **values: Any) -> None:
        """Delete the rows that have all of these values."""
        self._delete(table, values)
        self._changes_of(table).removed.append(values)

    def _delete(self, table: Table[Any], values: Mapping[str, Any]) -> None:
        self.execute(f"DELETE FROM {table} WHERE {_equalities(values)}", list(values.values()))

    def rewrite(self, table: Table[Any], workspace_id: str, sql: str, params: Sequence[Any] = ()) -> int:
        """Run an ``UPDATE`` of many rows of one workspace; the number of rows changed."""
        [(count,)] = self.rows(sql, params)
        if count:
            self._changes_of(table).rewritten.add(workspace_id)
        return int(count)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Run one parametrised statement on the projection's own tables."""
        changed(self._con, self._tables)  # whichever of them
        self._con.execute(sql, params)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read from the projection's own tables."""
        changed(self._con, self._tables)  # an UPDATE has a result, too
        return self._con.execute(sql, params).fetchall()

    def get(self, table: Table[R], **values: Any) -> list[R]:
        """The rows that have all of these values."""
        rows = self.rows(f"SELECT {table.names} FROM {table} WHERE {_equalities(values)}", list(values.values()))
        return [table.row(*row) for row in rows]

    def find(self, table: Table[R], keys: Sequence[int]) -> list[R]:
        """The rows with one of ``keys`` in the column ``key``; costs next to nothing without such rows."""
        if not may_hold(self._con, table.name, keys):
            return []
        rows = self.rows(f"SELECT {table.names} FROM {table} WHERE {KEY} IN (SELECT unnest(?))", [keys])
        return [table.row(*row) for row in rows]

    def whole(self, table: Table[R]) -> Sequence[R]:
        """All rows of a small table of this projection; cached until the table changes."""
        return whole(self._con, table)

    def _changes_of(self, table: Table[Any]) -> TableChanges:
        return self._changes.setdefault(table.name, TableChanges())


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
    """The projection's tables, those of a former version with what columns they lack, and its checkpoint row, at 0 if new.

    Args:
        con: The connection.
        projection: The projection.
        existing: Names of the tables that the file has.

    Raises:
        TablesRefused: If DuckDB cannot make one of them.
    """
    forget(con)
    try:
        make(con, projection.tables, existing)
    except duckdb.ProgrammingError as error:  # the parser's, the binder's or the catalogue's
        reason = str(error).splitlines()[0]
        raise TablesRefused(f"the tables of {projection.name} cannot be made: {reason}", hint=_DDL_HINT) from error
    con.execute(
        "INSERT INTO checkpoint SELECT $1, $2, 0 WHERE NOT EXISTS (FROM checkpoint WHERE projection = $1)",
        [projection.name, projection.version],
    )


def drop_tables(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Forget the projection's rows and its checkpoint: the same events would give other rows now."""
    forget(con)
    for table in projection.tables:
        con.execute(f'DROP TABLE IF EXISTS "{table}"')
    con.execute("DELETE FROM checkpoint WHERE projection = ?", [projection.name])
    forget_strikes(con, projection)
