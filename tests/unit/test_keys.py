"""Keys in memory never miss a row that is in the table."""

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.consumers.host import transaction as keys_in_memory
from crew_journal.consumers.host.transaction import Keys, forget, insert_columns, may_hold, transaction

MOST = 2**64 - 1


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE facts (key UBIGINT NOT NULL, word VARCHAR)")
        connection.execute("INSERT INTO facts VALUES (7, 'before')")
        yield connection


def insert(con: duckdb.DuckDBPyConnection, key: int) -> None:
    insert_columns(con, "facts", {"key": [key], "word": ["x"]})


@given(
    st.lists(st.integers(0, 30) | st.just(MOST)),
    st.lists(st.lists(st.integers(0, 30))),
    st.lists(st.integers(0, 30) | st.just(MOST), min_size=1),
)
def test_a_key_that_was_stored_or_added_is_held_and_no_other(
    stored: list[int], added: list[list[int]], asked: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys_in_memory, "ADDED_KEPT", 4)
        keys = Keys(np.array(stored, np.uint64))
        for some in added:
            keys.add(some)
    assert keys.may_hold(asked) is not set(asked).isdisjoint({*stored, *(key for some in added for key in some)})


def test_keys_that_are_inserted_again_take_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_in_memory, "ADDED_KEPT", 2)
    keys = Keys(np.array([5, 9], np.uint64))
    for _ in range(3):
        keys.add([9, MOST, 0])
    assert keys._stored.tolist() == [0, 5, 9, MOST]


def test_rows_that_were_there_and_rows_inserted_since_are_known(con: duckdb.DuckDBPyConnection) -> None:
    assert may_hold(con, "facts", [1, 7])
    assert not may_hold(con, "facts", [1, MOST])
    with transaction(con):
        insert(con, MOST)
        assert may_hold(con, "facts", [1, MOST])
    assert may_hold(con, "facts", [MOST])


def test_after_a_rollback_keys_are_read_again(con: duckdb.DuckDBPyConnection) -> None:
    def fails() -> None:
        with transaction(con):
            assert not may_hold(con, "facts", [2])
            insert(con, 2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert may_hold(con, "facts", [7])
    assert not may_hold(con, "facts", [2])


def test_rows_that_came_by_another_way_are_known_once_all_is_forgotten(con: duckdb.DuckDBPyConnection) -> None:
    assert not may_hold(con, "facts", [3])
    con.execute("INSERT INTO facts VALUES (3, 'copied')")
    forget(con)
    assert may_hold(con, "facts", [3])
