"""``support.ownership`` catches a projection that touches a table that is not its own, whatever SQL it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import duckdb
import pytest
from support.events import at, entry
from support.ownership import OwnTablesOnly, TableNotOwned, ownership_of
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.transaction import ddl
from crew_journal.consumers.projection import Batch, FoldTransaction, Projection
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.table import Seq, Table, Tables

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq}")) for seq in range(1, 7)]


class MyRow(NamedTuple):
    key: Seq
    word: str | None


MINE = Table("mine", MyRow, "mine")


class Mine:
    """Has a table, and one that its folds make and drop."""

    name: ClassVar[str] = "mine"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (MINE,)
    folds: ClassVar = (EntryRecorded,)
    scratch: ClassVar[tuple[str, ...]] = ("sorted_mine",)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Nothing; tests run statements of their own."""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(ddl(MINE))
        connection.execute("INSERT INTO mine VALUES (1, 'a'), (2, 'b')")
        connection.execute("CREATE TABLE journal_entries (seq UBIGINT, summary VARCHAR)")
        connection.execute("INSERT INTO journal_entries VALUES (1, 'as it was')")
        yield connection


@pytest.fixture
def tx(con: duckdb.DuckDBPyConnection) -> OwnTablesOnly:
    return OwnTablesOnly(con, Mine())


FOREIGN = [
    "SELECT summary FROM journal_entries",
    "SELECT word FROM mine WHERE key IN (SELECT seq FROM journal_entries)",
    "WITH mine AS (SELECT * FROM journal_entries) SELECT * FROM mine",
    "SELECT * FROM main.journal_entries",
    'SELECT * FROM "journal_entries"',
    "UPDATE journal_entries SET summary = 'hacked'",
    "UPDATE mine SET word = (SELECT max(summary) FROM journal_entries)",
    "DELETE FROM journal_entries",
    "TRUNCATE journal_entries",
    "DELETE FROM mine USING journal_entries WHERE mine.key = journal_entries.seq",
    "INSERT INTO journal_entries VALUES (2, 'forged')",
    "INSERT INTO mine SELECT seq, summary FROM journal_entries",
    "SELECT seq FROM checkpoint",
    "SELECT * FROM read_text('/etc/hostname')",
    "COPY mine TO 'rows.csv'",
    "ATTACH ':memory:' AS elsewhere",
    "SELECT 1; DELETE FROM journal_entries",
    "DROP TABLE journal_entries",
    "SELECT ? + ?, (SELECT max(seq) FROM journal_entries)",
    "DELETE FROM mine WHERE abs(?) > ? AND key IN (SELECT seq FROM journal_entries)",
    "DROP TABLE mine",
    "ALTER TABLE mine ADD COLUMN more INTEGER",
    "CREATE TABLE another (x INTEGER)",
    "CREATE TEMP TABLE journal_entries AS SELECT 1 AS seq",
    "CREATE OR REPLACE TEMP TABLE sorted_mine AS SELECT * FROM journal_entries",
    "SET threads = 1",
    "COMMIT",
]


@pytest.mark.parametrize("sql", FOREIGN)
@pytest.mark.parametrize("run", [OwnTablesOnly.execute, OwnTablesOnly.rows])
def test_a_statement_that_goes_beyond_the_own_tables_is_refused_before_it_runs(
    con: duckdb.DuckDBPyConnection, tx: OwnTablesOnly, run: Callable[..., Any], sql: str
) -> None:
    for _ in range(2):  # a refusal is not remembered as leave
        with pytest.raises(TableNotOwned, match="projection mine"):
            run(tx, sql, [1] * sql.count("?"))
    assert con.execute("SELECT * FROM journal_entries").fetchall() == [(1, "as it was")]
    assert con.execute("SELECT * FROM mine").fetchall() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("table", ["journal_entries", "checkpoint", "sorted_mine"])
def test_tables_that_are_named_must_be_own_ones(tx: OwnTablesOnly, table: str) -> None:
    foreign = Table(table, MyRow, "another")
    for run in (
        lambda: tx.insert(foreign, {"key": [9]}),
        lambda: tx.whole(foreign),
        lambda: tx.find(foreign, [1]),
    ):
        with pytest.raises(TableNotOwned, match=f"mine does not own table {table}"):
            run()


def test_own_tables_are_read_and_written_in_any_way(tx: OwnTablesOnly) -> None:
    tx.execute("INSERT INTO mine VALUES (?, ?)", [3, "c"])
    tx.execute("UPDATE mine SET word = upper(word) WHERE key IN (SELECT unnest(?))", [[1, 3]])
    tx.execute("CREATE OR REPLACE TEMP TABLE sorted_mine AS SELECT * FROM mine WHERE key < ? ORDER BY word", [3])
    tx.execute("DELETE FROM mine WHERE key < ?", [3])
    tx.execute("INSERT INTO mine SELECT * FROM sorted_mine")
    tx.execute("DROP TABLE sorted_mine")
    assert tx.rows("WITH own AS (SELECT * FROM mine) SELECT word FROM own ORDER BY key") == [("A",), ("b",), ("C",)]
    assert tx.rows("DELETE FROM mine WHERE key = ? RETURNING word", [2]) == [("b",)]
    assert sorted(tx.whole(MINE)) == [(1, "A"), (3, "C")]


def test_a_statement_that_is_wrong_in_itself_fails_with_duckdb_s_own_words(tx: OwnTablesOnly) -> None:
    with pytest.raises(duckdb.ParserException):
        tx.execute("SELEKT 1")
    with pytest.raises(duckdb.BinderException, match="nowhere"):
        tx.rows("SELECT nowhere FROM mine")


class Thief(Mine):
    """Changes what it does not own."""

    name: ClassVar[str] = "thief"
    sql: ClassVar[str] = "UPDATE journal_entries SET summary = 'hacked'"

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        tx.execute(self.sql)


async def test_a_fold_that_touches_another_s_table_is_caught_in_every_test_with_a_host(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [*discover_projections(), Thief()]) as live:
        await live.host.fold(STREAM)
        [lag] = live.host.status().laggards
        assert (lag.projection, (lag.error or "").split(",")[0]) == ("thief", "TableNotOwned")
        assert live.store.rows("SELECT DISTINCT summary LIKE 'entry number%' FROM journal_entries") == [(True,)]


@pytest.mark.parametrize("projection", discover_projections(), ids=lambda projection: projection.name)
def test_every_projection_makes_the_tables_it_names_and_no_others(projection: Projection) -> None:
    ownership_of(projection)
