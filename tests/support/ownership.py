"""Refuses every statement of a fold that goes beyond the projection's own tables.

Why by asking DuckDB: a second DuckDB, in memory and without access to files, holds nothing but the projection's empty
tables. A statement that names another one cannot be bound there, however it is written, so nothing is parsed here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import duckdb

from crew_journal.consumers.host import folding
from crew_journal.consumers.host import host as tidying
from crew_journal.consumers.host.transaction import ProjectionTransaction, ddl
from crew_journal.consumers.projection import Projection
from crew_journal.schemas.core.ports import Changes
from crew_journal.schemas.core.table import R, Table

_ROWS: Final = frozenset(
    {
        duckdb.StatementType.SELECT,
        duckdb.StatementType.INSERT,
        duckdb.StatementType.UPDATE,
        duckdb.StatementType.DELETE,
        duckdb.StatementType.MERGE_INTO,
    }
)
_MAKES_SCRATCH: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+TABLE\s+(\w+)\s+AS\b(.*)", re.I | re.S
)
_DROPS_SCRATCH: Final = re.compile(r"\s*DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?(\w+)\s*;?\s*", re.I)


class TableNotOwned(Exception):
    """A projection reads or writes a table that is not its own, or runs a statement that no fold may run."""


class Ownership:
    """The tables of one projection class, and the statements that were found to keep to them."""

    def __init__(self, projection: Projection) -> None:
        """Make its tables in the second DuckDB."""
        self._name = projection.name
        self._tables = frozenset(table.name for table in projection.tables)
        self._scratch: frozenset[str] = frozenset(getattr(projection, "scratch", ()))
        self._accepted: set[str] = set()
        self._lock = (
            threading.Lock()
        )  # several nodes of one test fold at once, and the connection refuses a second call
        self._con = duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": False})
        for sql in map(ddl, projection.tables):
            self._con.execute(sql)

    def close(self) -> None:
        """Close the second DuckDB."""
        self._con.close()

    def require(self, table: str) -> None:
        """Raises TableNotOwned unless ``table`` is the projection's own."""
        if table not in self._tables:
            raise TableNotOwned(f"projection {self._name} does not own table {table}")

    def check(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Raises TableNotOwned unless the statement reads and writes the projection's own tables only."""
        if sql not in self._accepted:
            with self._lock:
                self._bind(sql, params)
            self._accepted.add(sql)

    def _bind(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> None:
        statements = self._con.extract_statements(sql)
        if len(statements) != 1:
            raise TableNotOwned(f"projection {self._name} runs {len(statements)} statements at once")
        try:
            if statements[0].type in _ROWS:
                self._explain(sql, params)
                return
            if (made := _MAKES_SCRATCH.fullmatch(sql)) and made[1] in self._scratch:
                self._con.execute(f"CREATE OR REPLACE TABLE {made[1]} AS {made[2]}", params)
                return
        except (duckdb.CatalogException, duckdb.PermissionException) as error:
            raise TableNotOwned(f"projection {self._name}: {str(error).splitlines()[0]}") from error
        if (dropped := _DROPS_SCRATCH.fullmatch(sql)) and dropped[1] in self._scratch:
            return
        raise TableNotOwned(f"projection {self._name} runs a statement that no fold may: {statements[0].type.name}")

    def _explain(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Have DuckDB bind all names; ``PREPARE`` stops at the first parameter whose type it would have to know."""
        try:
            self._con.execute(f"EXPLAIN {sql}", params).fetchall()
        except duckdb.ParserException:
            if params:
                raise
            self._con.execute(f"PREPARE asked AS {sql}")  # TRUNCATE cannot be explained


_known: Final[dict[type, Ownership]] = {}


def ownership_of(projection: Projection) -> Ownership:
    """What the projection's class may touch."""
    if type(projection) not in _known:
        _known[type(projection)] = Ownership(projection)
    return _known[type(projection)]


class OwnTablesOnly(ProjectionTransaction):
    """The transaction that folds get in tests: it refuses a statement before it runs."""

    def __init__(self, con: duckdb.DuckDBPyConnection, projection: Projection, changes: Changes | None = None) -> None:
        super().__init__(con, projection, changes)
        self._owned = ownership_of(projection)

    def insert(self, table: Table[Any], columns: Mapping[str, Any]) -> None:
        self._owned.require(table.name)
        super().insert(table, columns)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        self._owned.check(sql, params)
        super().execute(sql, params)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._owned.check(sql, params)
        return super().rows(sql, params)

    def find(self, table: Table[R], keys: Sequence[int]) -> list[R]:
        self._owned.require(table.name)
        return super().find(table, keys)

    def whole(self, table: Table[R]) -> Sequence[R]:
        self._owned.require(table.name)
        return super().whole(table)


@contextmanager
def own_tables_only() -> Iterator[None]:
    """Within, every host folds and tidies through ``OwnTablesOnly``."""
    with (
        mock.patch.object(folding, "ProjectionTransaction", OwnTablesOnly),
        mock.patch.object(tidying, "ProjectionTransaction", OwnTablesOnly),
    ):
        try:
            yield
        finally:
            for ownership in _known.values():
                ownership.close()  # DuckDB complains about connections that are open when the interpreter ends
            _known.clear()
