"""What SQL a projection may run: on its own tables, and nothing else.

Why by asking DuckDB: a second DuckDB, in memory and without access to files, holds nothing but the projection's empty
tables. A statement that names another one cannot be bound there, however it is written, so nothing is parsed here.

Invariant: each distinct statement is checked once (0.5 ms) and remembered; a batch pays for a look into a set.
"""

from __future__ import annotations

import atexit
import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import duckdb

from ...schemas.errors import CrewJournalError
from ..projection import Projection
from .tables import ddl

REMEMBERED: Final = 1_000
"""Statements of a projection that are remembered; its folds have some ten, unless they write values into their SQL."""
_MEMORY: Final = "64MB"
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

_numbers: Final = itertools.count()
_asking: Final = threading.Lock()
_known: Final[WeakKeyDictionary[type, Ownership]] = WeakKeyDictionary()


class TableNotOwned(CrewJournalError):
    """A projection reads or writes a table that is not its own, or does what no fold may: a bug of the projection."""

    title = "A projection touches a foreign table"


class TablesRefused(CrewJournalError):
    """DuckDB cannot make the tables of a projection: a bug of its declaration."""

    title = "A projection's tables cannot be made"


class Ownership:
    """The tables of one projection class, and the statements that were found to keep to them."""

    def __init__(self, projection: Projection) -> None:
        """Make its tables in the second DuckDB.

        Raises:
            TablesRefused: If DuckDB cannot make them.
        """
        self._name = projection.name
        self._tables = frozenset(table.name for table in projection.tables)
        self._scratch: frozenset[str] = frozenset(getattr(projection, "scratch", ()))
        self._fine: set[str] = set()
        self._con = _empty_database()
        self._make(projection)

    def close(self) -> None:
        """Nothing can be checked any more; whoever still holds this holds no connection."""
        self._con.close()
        del self._con

    def require(self, table: str) -> None:
        """Pass if ``table`` is its own.

        Raises:
            TableNotOwned: If not.
        """
        if table not in self._tables:
            raise TableNotOwned(f"projection {self._name} does not own table {table}", hint=_HINT)

    def check(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Pass if the statement reads and writes the projection's own tables only.

        Raises:
            TableNotOwned: If it names another table, a file, or is none that reads or changes rows.
            duckdb.Error: If it is wrong in itself; it would fail on the views, too.
        """
        if sql in self._fine:
            return
        with _asking:
            self._ask(sql, params)
            if len(self._fine) >= REMEMBERED:
                self._fine.clear()
            self._fine.add(sql)

    def _ask(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> None:
        statements = self._con.extract_statements(sql)
        if len(statements) != 1:
            raise TableNotOwned(f"projection {self._name} runs {len(statements)} statements at once", hint=_HINT)
        try:
            if statements[0].type in _ROWS:
                self._bind(sql, params)
                return
            if (made := _MAKES_SCRATCH.fullmatch(sql)) and made[1] in self._scratch:
                self._con.execute(f"CREATE OR REPLACE TABLE {made[1]} AS {made[2]}", _shortened(params))
                return
        except (duckdb.CatalogException, duckdb.PermissionException) as error:
            said = str(error).splitlines()[0]
            raise TableNotOwned(f"projection {self._name} touches what it does not own: {said}", hint=_HINT) from error
        if (dropped := _DROPS_SCRATCH.fullmatch(sql)) and dropped[1] in self._scratch:
            return
        kind = statements[0].type.name
        raise TableNotOwned(f"projection {self._name} runs a statement that no fold may: {kind}", hint=_HINT)

    def _bind(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Have DuckDB find all that the statement names.

        ``PREPARE`` does not: it stops at the first parameter whose type it would have to know.
        """
        try:
            self._con.execute(f"EXPLAIN {sql}", _shortened(params)).fetchall()
        except duckdb.ParserException:
            if params:
                raise
            self._con.execute(f"PREPARE asked AS {sql}")  # TRUNCATE cannot be explained

    def _make(self, projection: Projection) -> None:
        with _asking:
            try:
                for sql in map(ddl, projection.tables):
                    self._con.execute(sql)
            except duckdb.Error as error:
                said = str(error).splitlines()[0]
                raise TablesRefused(f"the tables of {self._name} cannot be made: {said}", hint=_DDL_HINT) from error


def _shortened(params: Sequence[Any] | Mapping[str, Any]) -> list[Any] | dict[str, Any]:
    """Parameters of the same types: DuckDB writes them into what it explains, 10 s for a list of 5,000 texts."""
    if isinstance(params, Mapping):
        return {name: _first_of(value) for name, value in params.items()}
    return [_first_of(value) for value in params]


def _first_of(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [next((item for item in value if item is not None), None)] if value else []


_HINT: Final = "a fold reads and writes its own tables only; what it needs of others is in the events"
_DDL_HINT: Final = "look at the names and types of its columns"


def ownership_of(projection: Projection) -> Ownership:
    """What the projection's class may touch.

    Raises:
        TablesRefused: If DuckDB cannot make its tables.
    """
    kind = type(projection)
    known = _known.get(kind)
    if known is None:
        known = _known[kind] = Ownership(projection)
    return known


class _Database:
    """The second DuckDB: 3 MB, opened when the first projection is looked at."""

    root: duckdb.DuckDBPyConnection | None = None


def _empty_database() -> duckdb.DuckDBPyConnection:
    """A connection to a schema of its own."""
    with _asking:
        if _Database.root is None:
            config: dict[str, Any] = {
                "threads": 1,
                "memory_limit": _MEMORY,
                "enable_external_access": False,
                "autoload_known_extensions": False,
                "autoinstall_known_extensions": False,
            }
            _Database.root = duckdb.connect(":memory:", config=config)
            atexit.register(_close)
        con = _Database.root.cursor()
        schema = f"projection_{next(_numbers)}"
        con.execute(f"CREATE SCHEMA {schema}")
        con.execute(f"SET schema = '{schema}'")
        return con


def _close() -> None:
    """DuckDB complains of connections that the interpreter's end finds open."""
    for known in list(_known.values()):
        known.close()
    _known.clear()
    if _Database.root is not None:
        _Database.root.close()
        _Database.root = None
