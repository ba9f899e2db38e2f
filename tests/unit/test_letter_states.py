"""A letter is settled by another version of its view that took the event in its place, and by nothing less."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from crew_journal.consumers.host.transaction import CHECKPOINT_DDL, ddl
from crew_journal.schemas.access.tables import DEAD_LETTERS
from crew_journal.services.operate.status import LETTERS


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(CHECKPOINT_DDL)
        connection.execute(ddl(DEAD_LETTERS))
        yield connection


def letter(con: duckdb.DuckDBPyConnection, projection: str, version: int, seq: int, state: str = "parked") -> None:
    row = [projection, seq, version, "journal.w1._.a.note", "why", 1, state, "w1"]
    con.execute("INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def states(con: duckdb.DuckDBPyConnection) -> list[tuple[str, int, int, str]]:
    found = con.execute(f"SELECT projection, version, seq, state FROM {LETTERS} ORDER BY ALL")
    return [(name, version, seq, state) for name, version, seq, state in found.fetchall()]


def test_a_new_version_that_has_passed_the_event_settles_its_letter(con: duckdb.DuckDBPyConnection) -> None:
    for seq in (5, 8):
        letter(con, "turns", 1, seq)
    con.execute("INSERT INTO checkpoint VALUES ('turns', 2, 7)")
    assert states(con) == [("turns", 1, 5, "folded"), ("turns", 1, 8, "parked")]


def test_the_version_that_parked_it_settles_nothing_however_far_it_is(con: duckdb.DuckDBPyConnection) -> None:
    letter(con, "turns", 1, 5)
    con.execute("INSERT INTO checkpoint VALUES ('turns', 1, 90), ('entries', 2, 90)")
    assert states(con) == [("turns", 1, 5, "parked")]


def test_a_new_version_that_parks_it_too_settles_nothing(con: duckdb.DuckDBPyConnection) -> None:
    letter(con, "turns", 1, 5)
    letter(con, "turns", 2, 5)
    con.execute("INSERT INTO checkpoint VALUES ('turns', 2, 90)")
    assert [state for *_, state in states(con)] == ["parked", "parked"]


def test_what_was_decided_stays_decided_and_what_no_view_saw_stays_parked(con: duckdb.DuckDBPyConnection) -> None:
    letter(con, "turns", 1, 5, "discarded")
    letter(con, "turns", 1, 6, "retried")
    letter(con, "decode", 1, 7)
    con.execute("INSERT INTO checkpoint VALUES ('turns', 2, 90)")
    assert [state for *_, state in states(con)] == ["parked", "discarded", "retried"]
