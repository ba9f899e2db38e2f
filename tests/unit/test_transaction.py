"""A projection's tables are made as its DDL says, and rows of a former version get the columns that they lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

import duckdb
import pytest

from crew_journal.consumers.host.transaction import CHECKPOINT_DDL, TablesRefused, create_tables
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.table import Default, Seq, Table, Tables


class OddRow(NamedTuple):
    key: Seq
    word: Annotated[str | None, Default("'no'")]


class NothingRow(NamedTuple):
    a: Annotated[int, "NOTHING"]


class Odd:
    """Has a table."""

    name: ClassVar[str] = "odd"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (Table("odd", OddRow, "odd"),)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Nothing is folded here."""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(CHECKPOINT_DDL)
        yield connection


def test_a_table_that_duckdb_cannot_make_is_refused_by_the_projection_s_name(con: duckdb.DuckDBPyConnection) -> None:
    kind = type("Kind", (Odd,), {"tables": (Table("odd", NothingRow, "odd"),)})
    with pytest.raises(TablesRefused, match="the tables of odd cannot be made"):
        create_tables(con, kind(), ())


def test_a_table_of_a_former_version_gets_the_columns_that_it_lacks(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE odd (key UBIGINT NOT NULL)")
    con.execute("INSERT INTO odd VALUES (7)")
    create_tables(con, Odd(), {"odd"})
    assert con.execute("SELECT * FROM odd").fetchall() == [(7, "no")]
