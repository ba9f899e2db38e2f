"""A projection's tables are made as its DDL says, and rows of a former version get the columns that they lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import duckdb
import pytest

from crew_journal.consumers.host.transaction import CHECKPOINT_DDL, TablesRefused, create_tables
from crew_journal.consumers.projection import Batch, FoldTransaction


class Odd:
    """Has a table."""

    name: ClassVar[str] = "odd"
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (
        "CREATE TABLE IF NOT EXISTS odd (key UBIGINT NOT NULL, word VARCHAR DEFAULT 'no')",
    )
    tables: ClassVar[tuple[str, ...]] = ("odd",)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Nothing is folded here."""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(CHECKPOINT_DDL)
        yield connection


@pytest.mark.parametrize(
    ("ddl", "tables", "complaint"),
    [
        ("CREATE TABL x (a INTEGER)", ("x",), "the ddl of odd is not valid: Parser Error"),
        ("CREATE TABLE IF NOT EXISTS x (a NOTHING)", ("x",), "the ddl of odd is not valid"),
        ("CREATE TABLE IF NOT EXISTS x (a INTEGER)", ("y",), "the ddl of odd does not make y"),
    ],
)
def test_ddl_that_does_not_make_the_tables_it_names_is_refused_by_the_projection_s_name(
    con: duckdb.DuckDBPyConnection, ddl: str, tables: tuple[str, ...], complaint: str
) -> None:
    kind = type("Kind", (Odd,), {"ddl": (ddl,), "tables": tables})
    with pytest.raises(TablesRefused, match=complaint):
        create_tables(con, kind())


def test_a_table_of_a_former_version_gets_the_columns_that_it_lacks(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE odd (key UBIGINT NOT NULL)")
    con.execute("INSERT INTO odd VALUES (7)")
    create_tables(con, Odd())
    assert con.execute("SELECT * FROM odd").fetchall() == [(7, "no")]
