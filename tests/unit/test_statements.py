"""Statements planned once stay right when the transaction, the catalogue or the checkpoints change beneath them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import duckdb
import pytest

from crew_journal.consumers.host.transaction import (
    CHECKPOINT_DDL,
    CheckpointsChanged,
    ProjectionTransaction,
    insert_columns,
    move_checkpoints,
    transaction,
)
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.table import Seq, Table, Tables


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE numbers (n UBIGINT NOT NULL, word VARCHAR)")
        connection.execute(CHECKPOINT_DDL)
        connection.execute("INSERT INTO checkpoint VALUES ('a', 1, 0), ('b', 1, 0)")
        yield connection


def insert(con: duckdb.DuckDBPyConnection, n: int) -> None:
    with transaction(con):
        insert_columns(con, "numbers", {"n": [n], "word": [str(n)]})


def found(con: duckdb.DuckDBPyConnection) -> list[tuple[int, str]]:
    return con.execute("SELECT n, word FROM numbers ORDER BY n").fetchall()


def test_every_execution_inserts_its_own_rows(con: duckdb.DuckDBPyConnection) -> None:
    for n in range(300):
        insert(con, n)
    assert found(con) == [(n, str(n)) for n in range(300)]


def test_an_insert_works_again_after_the_rollback_that_took_its_view(con: duckdb.DuckDBPyConnection) -> None:
    def fails() -> None:
        with transaction(con):
            insert_columns(con, "numbers", {"n": [1], "word": ["1"]})
            raise RuntimeError

    for _ in range(3):
        with pytest.raises(RuntimeError):
            fails()
    with pytest.raises(duckdb.ConstraintException), transaction(con):
        insert_columns(con, "numbers", {"n": [None], "word": ["2"]})
    insert(con, 3)
    assert found(con) == [(3, "3")]


def test_an_insert_outlives_temporary_tables_made_after_it(con: duckdb.DuckDBPyConnection) -> None:
    insert(con, 1)
    con.execute("CREATE OR REPLACE TEMP TABLE other AS SELECT 1 AS x")
    insert(con, 2)
    con.execute("DROP TABLE other")
    insert(con, 3)
    assert [n for n, _ in found(con)] == [1, 2, 3]


def test_a_checkpoint_that_appeared_unseen_is_not_moved_with_the_others(con: duckdb.DuckDBPyConnection) -> None:
    everyone = frozenset({"a", "b"})
    with transaction(con):
        move_checkpoints(con, everyone, 5)
    con.execute("INSERT INTO checkpoint VALUES ('late', 1, 0)")
    with pytest.raises(CheckpointsChanged), transaction(con):
        move_checkpoints(con, everyone, 6)
    with transaction(con):
        move_checkpoints(con, everyone, 7)
    assert dict(con.execute("SELECT projection, seq FROM checkpoint").fetchall()) == {"a": 7, "b": 7, "late": 0}


class NumberRow(NamedTuple):
    n: Seq
    word: str | None


NUMBERS = Table("numbers", NumberRow, "numbers")


class Numbers:
    """Owns the table of this module's connection."""

    name: ClassVar[str] = "numbers"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (NUMBERS,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Folds nothing."""


def test_a_small_table_that_is_remembered_is_as_its_projection_left_it(con: duckdb.DuckDBPyConnection) -> None:
    def fails() -> None:
        with transaction(con):
            tx.execute("DELETE FROM numbers")
            assert tx.whole(NUMBERS) == []
            raise RuntimeError

    tx = ProjectionTransaction(con, Numbers())
    assert tx.whole(NUMBERS) == tx.whole(NUMBERS) == []
    tx.insert(NUMBERS, {"n": [1], "word": ["a"]})
    assert tx.whole(NUMBERS) == tx.whole(NUMBERS) == [(1, "a")]
    tx.execute("UPDATE numbers SET word = 'b'")
    assert tx.whole(NUMBERS) == [(1, "b")]
    assert tx.rows("UPDATE numbers SET word = 'c'") == [(1,)]
    assert tx.whole(NUMBERS) == [(1, "c")]
    with pytest.raises(RuntimeError):
        fails()
    assert tx.whole(NUMBERS) == [(1, "c")]
