"""What folds write through: rows and checkpoints of one batch, all or nothing.

Invariant: a projection reads and writes its own tables only, and its checkpoint is written in the transaction of its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from ..projection import Projection
from .leniency import forget_strikes
from .ownership import TableNotOwned, ownership_of
from .statements import (
    KEY,
    changed,
    forget,
    insert_columns,
    may_hold,
    move_checkpoints,
    whole,
)

__all__ = [
    "CHECKPOINT_DDL",
    "ProjectionTransaction",
    "TableNotOwned",
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
    given = dict(params) if isinstance(params, Mapping) else list(params)
    relation: Any = con.sql(sql, params=given or None)
    return relation.to_arrow_table()


class ProjectionTransaction:
    """The ``FoldTransaction`` of one projection inside the batch's transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
        self._con = con
        self._tables = projection.tables
        self._owned = ownership_of(projection)

    def insert(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows given as equally long columns (numpy arrays, pyarrow arrays or lists)."""
        self._owned.require(table)
        changed(self._con, [table])
        insert_columns(self._con, table, columns)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one parametrised statement on the projection's own tables."""
        self._owned.check(sql, params)
        changed(self._con, self._tables)  # whichever of them
        self._con.execute(sql, params)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read from the projection's own tables."""
        self._owned.check(sql, params)
        changed(self._con, self._tables)  # an UPDATE has a result, too
        return self._con.execute(sql, params).fetchall()

    def find(self, table: str, columns: Sequence[str], keys: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of an own table with one of ``keys`` in its column ``key``; costs next to nothing if there is none."""
        self._owned.require(table)
        if not may_hold(self._con, table, keys):
            return []
        return self.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {KEY} IN (SELECT unnest(?))", [keys])

    def whole(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a small table of its own; free while nobody changes it."""
        self._owned.require(table)
        return whole(self._con, table)

    def columns(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Read from the projection's own tables as a ``pyarrow.Table``."""
        self._owned.check(sql, params)
        return arrow_table(self._con, sql, params)


def read_checkpoints(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Projection → (version, last committed sequence)."""
    found = con.execute("SELECT projection, version, seq FROM checkpoint").fetchall()
    return {name: (version, seq) for name, version, seq in found}


def write_checkpoints(con: duckdb.DuckDBPyConnection, names: Iterable[str], seq: int) -> None:
    """Move the checkpoints of ``names`` to ``seq``, inside the caller's transaction."""
    if moved := frozenset(names):
        move_checkpoints(con, moved, seq)


def existing_tables(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Names of the tables that the file has."""
    return frozenset(name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall())


def create_tables(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """The projection's tables, those of a former version with what columns they lack, and its checkpoint row, at 0 if new.

    Raises:
        TablesRefused: If its DDL is not valid or makes other tables than it names.
    """
    ownership_of(projection)
    forget(con)
    for statement in projection.ddl:
        con.execute(statement)
    _add_missing_columns(con, projection)
    known = con.execute("SELECT 1 FROM checkpoint WHERE projection = ?", [projection.name]).fetchone()
    if known is None:
        con.execute("INSERT INTO checkpoint VALUES (?, ?, 0)", [projection.name, projection.version])


def _add_missing_columns(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    there = set(con.execute("SELECT table_name, column_name FROM duckdb_columns()").fetchall())
    for table, column, kind, default in ownership_of(projection).columns():
        if table in projection.tables and (table, column) not in there:  # scratch tables are only there for a while
            con.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {kind} DEFAULT {default or "NULL"}')


def drop_tables(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Forget the projection's rows and its checkpoint: the same events would give other rows now."""
    forget(con)
    for table in projection.tables:
        con.execute(f'DROP TABLE IF EXISTS "{table}"')
    con.execute("DELETE FROM checkpoint WHERE projection = ?", [projection.name])
    forget_strikes(con, projection)
