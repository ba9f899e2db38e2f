"""Digests: equal for equal rows in any order and layout, different for any other set of rows."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from crew_journal.consumers.host.rebuild import DIFFERENCES_LISTED, differences, digest
from crew_journal.consumers.host.transaction import digest_queries
from crew_journal.schemas.core.table import Seq, Table, Tables

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
        st.one_of(st.none(), st.binary(max_size=4)),
        st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0])),
    ),
    max_size=20,
)
Row = tuple[object, ...]


class Wide(NamedTuple):
    a: Seq
    b: str | None
    c: bytes | None
    d: float | None


class Narrow(NamedTuple):
    a: int


class Layout(NamedTuple):
    r: float


TAIL = Table("tail", Wide, "spread", digested=False)


class View:
    name: ClassVar[str] = "view"
    tables: ClassVar[Tables] = (Table("t", Wide, "view"),)


class Numbers:
    name: ClassVar[str] = "numbers"
    tables: ClassVar[Tables] = (Table("t", Narrow, "numbers"),)


class Spread:
    """Rows in two tables that count as one set, beside one that does not count."""

    name: ClassVar[str] = "spread"
    tables: ClassVar[Tables] = (
        Table("t", Wide, "spread", rest=TAIL),
        TAIL,
        Table("layout", Layout, "spread", digested=False),
    )


def filled(rows: list[Row], tail: list[Row] | None = None) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    for table, content in (("t", rows), ("tail", tail or [])):
        con.execute(f"CREATE TABLE {table} (a UBIGINT, b VARCHAR, c BLOB, d DOUBLE)")
        for row in content:
            con.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", list(row))
    con.execute("CREATE TABLE layout AS SELECT random() AS r")
    return con


@settings(max_examples=max(3, settings.default.max_examples // 3))
@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_layout_do_not_count(rows: list[Row], rng: object, cut: int) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    with filled(rows) as one, filled(shuffled[:cut], shuffled[cut:]) as other:
        assert digest(one, Spread()) == digest(other, Spread())
        assert digest(one, Spread()).rows == len(rows)
        assert differences(one, other, Spread()).listed == []


@settings(max_examples=max(3, settings.default.max_examples // 3))
@given(ROWS.filter(bool), st.data())
def test_a_changed_missing_or_repeated_row_gives_another_digest_and_is_named(
    rows: list[Row], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    change = data.draw(st.sampled_from(["missing", "repeated", "a", "b", "c", "d"]))
    other = list(rows)
    if change == "missing":
        del other[at]
    elif change == "repeated":
        other.append(other[at])
    else:
        row = list(other[at])
        column = "abcd".index(change)
        row[column] = (int(row[0]) ^ 1, f"{row[1]}x", (row[2] or b"") + b"\x00", (row[3] or 0.0) + 7.0)[column]  # type: ignore[call-overload, operator]
        other[at] = tuple(row)
    with filled(rows) as live, filled(other) as fresh:
        assert digest(live, View()).digest != digest(fresh, View()).digest
        found = differences(live, fresh, View())
        assert found.counts["t"]
        assert all(difference.table == "t" for difference in found.listed)


def test_the_sums_are_exact_however_many_rows_there_are() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS a FROM range(200000) r(i)")
        forward = digest(con, Numbers())
        con.execute("CREATE OR REPLACE TABLE t AS SELECT i AS a FROM range(200000) r(i) ORDER BY hash(i)")
        assert digest(con, Numbers()) == forward
        con.execute("UPDATE t SET a = 200000 WHERE a = 77777")
        assert digest(con, Numbers()) != forward


def test_all_differing_rows_are_counted_and_a_hundred_are_listed() -> None:
    rows: list[Row] = [(number, "x", b"", 0.0) for number in range(1_000)]
    changed: list[Row] = [(n, "y" if n % 3 == 0 else "x", b"", 0.0) for n in range(1_000) if n % 5]
    with filled(rows) as live, filled([*changed, (2_000, "new", b"", 0.0)]) as fresh:
        found = differences(live, fresh, View())
    missing, edited = 200, sum(1 for n in range(1_000) if n % 5 and n % 3 == 0)
    assert found.counts == {"t": {"only live": missing, "changed": edited, "only fresh": 1}}
    assert len(found.listed) == DIFFERENCES_LISTED


def test_the_key_and_column_of_a_difference_are_named() -> None:
    with (
        filled([(1, "x", b"", 0.0), (2, "y", b"", 0.0)]) as live,
        filled([(1, "x", b"", 0.0), (2, "z", b"", 0.0)]) as fresh,
    ):
        found = differences(live, fresh, View())
    assert list(map(str, found.listed)) == ["t (a=2, b=y, c=): changed in b"]
    assert list(digest_queries(View.tables).values()) == ['SELECT a, b, c, d FROM "t"']
