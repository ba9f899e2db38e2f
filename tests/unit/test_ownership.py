"""A projection reads and writes its own tables only, whatever SQL it runs; one that does not leaves the group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import duckdb
import pytest
from support.events import at, entry
from support.views import node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host import ownership
from crew_journal.consumers.host.catchup import catch_up
from crew_journal.consumers.host.ownership import Ownership, TableNotOwned, TablesRefused, ownership_of
from crew_journal.consumers.host.tables import ddl
from crew_journal.consumers.host.transaction import ProjectionTransaction
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.views.table import Seq, Table, Tables

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq}")) for seq in range(1, 7)]


class MyRow(NamedTuple):
    key: Seq
    word: str | None


class OddRow(NamedTuple):
    a: Annotated[int, "NOTHING"]


MINE = Table("mine", MyRow, "mine")


class Mine:
    """Has a table, and one that its folds make and drop."""

    name: ClassVar[str] = "mine"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (MINE,)
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
def tx(con: duckdb.DuckDBPyConnection) -> ProjectionTransaction:
    return ProjectionTransaction(con, Mine())


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
@pytest.mark.parametrize("run", [ProjectionTransaction.execute, ProjectionTransaction.rows])
def test_a_statement_that_goes_beyond_the_own_tables_is_refused_before_it_runs(
    con: duckdb.DuckDBPyConnection, tx: ProjectionTransaction, run: Callable[..., Any], sql: str
) -> None:
    for _ in range(2):  # a refusal is not remembered as leave
        with pytest.raises(TableNotOwned, match="projection mine"):
            run(tx, sql, [1] * sql.count("?"))
    assert con.execute("SELECT * FROM journal_entries").fetchall() == [(1, "as it was")]
    assert con.execute("SELECT * FROM mine").fetchall() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("table", ["journal_entries", "checkpoint", "sorted_mine"])
def test_tables_that_are_named_must_be_own_ones(tx: ProjectionTransaction, table: str) -> None:
    foreign = Table(table, MyRow, "another")
    for run in (
        lambda: tx.insert(foreign, {"key": [9]}),
        lambda: tx.whole(foreign),
        lambda: tx.find(foreign, [1]),
    ):
        with pytest.raises(TableNotOwned, match=f"mine does not own table {table}"):
            run()


def test_own_tables_are_read_and_written_in_any_way(tx: ProjectionTransaction) -> None:
    tx.execute("INSERT INTO mine VALUES (?, ?)", [3, "c"])
    tx.execute("UPDATE mine SET word = upper(word) WHERE key IN (SELECT unnest(?))", [[1, 3]])
    tx.execute("CREATE OR REPLACE TEMP TABLE sorted_mine AS SELECT * FROM mine WHERE key < ? ORDER BY word", [3])
    tx.execute("DELETE FROM mine WHERE key < ?", [3])
    tx.execute("INSERT INTO mine SELECT * FROM sorted_mine")
    tx.execute("DROP TABLE sorted_mine")
    assert tx.rows("WITH own AS (SELECT * FROM mine) SELECT word FROM own ORDER BY key") == [("A",), ("b",), ("C",)]
    assert tx.rows("DELETE FROM mine WHERE key = ? RETURNING word", [2]) == [("b",)]
    assert sorted(tx.whole(MINE)) == [(1, "A"), (3, "C")]


def test_a_statement_that_is_wrong_in_itself_fails_with_duckdb_s_own_words(tx: ProjectionTransaction) -> None:
    with pytest.raises(duckdb.ParserException):
        tx.execute("SELEKT 1")
    with pytest.raises(duckdb.BinderException, match="nowhere"):
        tx.rows("SELECT nowhere FROM mine")


def test_a_statement_is_checked_once(tx: ProjectionTransaction, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = Ownership._ask

    def counted(self: Ownership, sql: str, params: Any) -> None:
        asked.append(sql)
        ask(self, sql, params)

    monkeypatch.setattr(Ownership, "_ask", counted)
    for key in range(50):
        tx.rows("SELECT word FROM mine WHERE key = ? -- once", [key])
    assert len(asked) == 1


def test_a_statement_s_parameters_do_not_make_its_check_slow(tx: ProjectionTransaction) -> None:
    many = [str(n) * 200 for n in range(5_000)]
    started = time.process_time()
    ownership_of(Mine()).check("DELETE FROM mine WHERE word IN (SELECT unnest(?)) -- many", [many])
    ownership_of(Mine()).check("SELECT list_transform(?, lambda one: one || 'x') FROM mine", [many])
    assert time.process_time() - started < 1.0, "10 s where DuckDB explains them"


def test_values_written_into_sql_do_not_fill_the_memory(
    tx: ProjectionTransaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "REMEMBERED", 10)
    for key in range(35):
        tx.rows(f"SELECT word FROM mine WHERE key = {key}")
    assert len(ownership_of(Mine())._fine) <= 10


class Thief(Mine):
    """Changes what it does not own."""

    name: ClassVar[str] = "thief"
    sql: ClassVar[str] = "UPDATE journal_entries SET summary = 'hacked'"

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        tx.execute(self.sql)


async def test_a_view_that_touches_another_s_table_leaves_the_group_and_changes_nothing(tmp_path: Path) -> None:
    async with node(tmp_path / "v.duckdb", [*discover_projections(), Thief()]) as live:
        await live.host.fold(STREAM)
        assert live.host.laggards == ("thief",)
        [lag] = live.host.status().laggards
        assert lag.error is not None
        assert lag.error.startswith("TableNotOwned")
        assert live.dead.parked == []
        assert live.store.rows("SELECT DISTINCT summary LIKE 'entry number%' FROM journal_entries") == [(True,)]
        assert await catch_up(live.host, source_of(STREAM)) == ("thief",)


def test_a_table_that_duckdb_cannot_make_is_refused_by_the_projection_s_name() -> None:
    kind = type("Odd", (Mine,), {"name": "odd", "tables": (Table("odd", OddRow, "odd"),)})
    with pytest.raises(TablesRefused, match="the tables of odd cannot be made"):
        ownership_of(kind())
