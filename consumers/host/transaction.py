"""What folds write through: rows and checkpoints of one batch, all or nothing.

Invariant: a projection's checkpoint is written in the transaction of its rows. That a fold reads and writes only its own
tables is proven by the contract suite, not checked here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from ...schemas.errors import CrewJournalError
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
_COLUMNS: Final = (
    "SELECT table_name, column_name, data_type, column_default FROM duckdb_columns() ORDER BY table_name, column_index"
)
_DDL_HINT: Final = "one CREATE TABLE IF NOT EXISTS, without a schema, for each name in tables"


class TablesRefused(CrewJournalError):
    """The DDL of a projection does not make the tables that it names: a bug of the projection."""

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
    given = dict(params) if isinstance(params, Mapping) else list(params)
    relation: Any = con.sql(sql, params=given or None)
    return relation.to_arrow_table()


class ProjectionTransaction:
    """The ``FoldTransaction`` of one projection inside the batch's transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
        self._con = con
        self._tables = projection.tables

    def insert(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows given as equally long columns (numpy arrays, pyarrow arrays or lists)."""
        changed(self._con, [table])
        insert_columns(self._con, table, columns)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one parametrised statement on the projection's own tables."""
        changed(self._con, self._tables)  # whichever of them
        self._con.execute(sql, params)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read from the projection's own tables."""
        changed(self._con, self._tables)  # an UPDATE has a result, too
        return self._con.execute(sql, params).fetchall()

    def find(self, table: str, columns: Sequence[str], keys: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of an own table with one of ``keys`` in its column ``key``; costs next to nothing if there is none."""
        if not may_hold(self._con, table, keys):
            return []
        return self.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {KEY} IN (SELECT unnest(?))", [keys])

    def whole(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a small table of its own; free while nobody changes it."""
        return whole(self._con, table)

    def columns(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Read from the projection's own tables as a ``pyarrow.Table``."""
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
        TablesRefused: If its DDL is not valid or does not make the tables that it names.
    """
    forget(con)
    kept = existing_tables(con).intersection(projection.tables)
    try:
        for statement in projection.ddl:
            con.execute(statement)
    except duckdb.ProgrammingError as error:  # the parser's, the binder's or the catalogue's
        said = str(error).splitlines()[0]
        raise TablesRefused(f"the ddl of {projection.name} is not valid: {said}", hint=_DDL_HINT) from error
    if missing := sorted(set(projection.tables) - existing_tables(con)):
        raise TablesRefused(f"the ddl of {projection.name} does not make {', '.join(missing)}", hint=_DDL_HINT)
    if kept:
        _add_missing_columns(con, projection)
    known = con.execute("SELECT 1 FROM checkpoint WHERE projection = ?", [projection.name]).fetchone()
    if known is None:
        con.execute("INSERT INTO checkpoint VALUES (?, ?, 0)", [projection.name, projection.version])


def _add_missing_columns(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    there = set(con.execute("SELECT table_name, column_name FROM duckdb_columns()").fetchall())
    with duckdb.connect() as empty:  # what the DDL makes where there is no table yet
        for statement in projection.ddl:
            empty.execute(statement)
        declared = empty.execute(_COLUMNS).fetchall()
    for table, column, kind, default in declared:
        if (table, column) not in there:
            con.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {kind} DEFAULT {default or "NULL"}')


def drop_tables(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Forget the projection's rows and its checkpoint: the same events would give other rows now."""
    forget(con)
    for table in projection.tables:
        con.execute(f'DROP TABLE IF EXISTS "{table}"')
    con.execute("DELETE FROM checkpoint WHERE projection = ?", [projection.name])
    forget_strikes(con, projection)
