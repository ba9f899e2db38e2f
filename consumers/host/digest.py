"""Canonical digests of a projection's rows, and the first row in which two copies differ.

Invariant: equal sets of rows (repeats counted) give equal digests whatever their order, layout or file; a changed, missing
or repeated row gives another one. It is the count and two sums of 64-bit row hashes with different salts: it detects
faults, not an attacker who can write the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import duckdb

from ...schemas.views.table import Tables
from .tables import digest_queries, digested_parts

_SALT: Final = "crew-journal"
_FETCH_ROWS: Final = 10_000
_VECTOR_ROWS: Final = 2_048
"""Rows that DuckDB reads at once."""
_RANGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the longest texts that are read at once; texts of up to 8 KiB need no ranges."""
_VALUE_CHARS: Final = 200
"""Characters of a value that a difference names."""


class DigestedView(Protocol):
    """What a digest needs to know: every projection is one, admission too."""

    name: ClassVar[str]
    tables: ClassVar[Tables]


@dataclass(frozen=True, slots=True)
class ViewDigest:
    """The rows of one projection.

    Attributes:
        rows: How many.
        digest: 32 hex digits over all its tables.
        tables: Table → its part of the digest.
    """

    rows: int
    digest: str
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two copies of a projection part.

    Attributes:
        table: The table.
        key: Leading columns of the row and their values; binary ones as hex.
        column: First column that differs, None if the row is there once only.
        kind: ``changed``, ``only live`` or ``only fresh``.
        live: The beginning of the value in the first copy, if it is changed.
        fresh: That in the second copy.
    """

    table: str
    key: Mapping[str, str]
    column: str | None
    kind: str
    live: str | None = None
    fresh: str | None = None

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.key.items())
        return f"{self.table} ({key}): {self.kind}" + (f" in {self.column}" if self.column else "")


def digest(con: duckdb.DuckDBPyConnection, view: DigestedView) -> ViewDigest:
    """The digest of a projection's rows as ``con`` sees them; in a transaction for one consistent state."""
    total = 0
    parts: dict[str, str] = {}
    for table, names in digested_parts(view.tables).items():
        rows = plain = salted = 0
        for part in names:
            for condition in _ranges(con, part):
                # HUGEINT holds 2**63 hashes exactly; the sum of UHUGEINT would be a float, which depends on the order
                sums = con.execute(
                    f"SELECT count(*), coalesce(sum(hash({table.names})::HUGEINT), 0)::VARCHAR, "
                    f'coalesce(sum(hash({table.names}, ?)::HUGEINT), 0)::VARCHAR FROM "{part}"{condition}',
                    [_SALT],
                ).fetchone()
                counted, sum_plain, sum_salted = sums or (0, "0", "0")
                rows, plain, salted = rows + counted, plain + int(sum_plain), salted + int(sum_salted)
        total += rows
        parts[table.name] = hashlib.blake2b(f"{rows} {plain} {salted}".encode(), digest_size=16).hexdigest()
    summary = " ".join(f"{table} {part}" for table, part in sorted(parts.items()))
    return ViewDigest(total, hashlib.blake2b(summary.encode(), digest_size=16).hexdigest(), parts)


def _ranges(con: duckdb.DuckDBPyConnection, part: str) -> Iterator[str]:
    """Conditions that cut a table into parts whose texts fit into memory; one without any for most tables.

    DuckDB reads the texts of 2,048 rows at once, 480 MB if each has 240 KB. Its statistics contain their maximum length.
    """
    [(longest, last)] = con.execute(
        "SELECT max(TRY_CAST(regexp_extract(stats::VARCHAR, 'max_string_length[^0-9]+([0-9]+)', 1) AS UBIGINT)), "
        f'(SELECT max(rowid) FROM "{part}") FROM pragma_storage_info(?)',
        [part],
    ).fetchall()
    at_once = _RANGE_BYTES // max(1, longest or 0)
    if at_once >= _VECTOR_ROWS or last is None:
        yield ""
        return
    at_once = max(1, at_once)
    for first in range(0, last + 1, at_once):
        yield f" WHERE rowid >= {first} AND rowid < {first + at_once}"


def first_difference(
    live: duckdb.DuckDBPyConnection, fresh: duckdb.DuckDBPyConnection, view: DigestedView
) -> Difference | None:
    """The first row, by the columns in their order, in which two copies of a projection differ.

    Both are sorted and compared row by row: seconds per million rows, for when the digests have differed.
    """
    for table, query in digest_queries(view.tables).items():
        names = [column.name for column in table.columns]
        difference = _compare(table.name, names, _sorted(live, query), _sorted(fresh, query))
        if difference is not None:
            return difference
    return None


def _sorted(con: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    cursor = con.execute(f"SELECT * FROM ({query}) ORDER BY ALL NULLS FIRST")
    while rows := cursor.fetchmany(_FETCH_ROWS):
        yield from rows


def _compare(
    table: str, names: Sequence[str], live: Iterator[tuple[Any, ...]], fresh: Iterator[tuple[Any, ...]]
) -> Difference | None:
    while True:
        live_row, fresh_row = next(live, None), next(fresh, None)
        if live_row is None and fresh_row is None:
            return None
        if live_row is None or fresh_row is None:
            row = live_row or fresh_row or ()
            return Difference(table, _key(names, row, 1), None, "only live" if fresh_row is None else "only fresh")
        if live_row == fresh_row:
            continue
        at = next(i for i, pair in enumerate(zip(live_row, fresh_row, strict=True)) if pair[0] != pair[1])
        # rows that agree in no leading column, or whose neighbour already matches, are not one changed row
        ahead_mine, ahead_theirs = next(live, None), next(fresh, None)
        if ahead_mine == fresh_row:
            return Difference(table, _key(names, live_row, at + 1), None, "only live")
        if ahead_theirs == live_row:
            return Difference(table, _key(names, fresh_row, at + 1), None, "only fresh")
        if at == 0:
            if _order(live_row[0]) < _order(fresh_row[0]):
                return Difference(table, _key(names, live_row, 1), None, "only live")
            return Difference(table, _key(names, fresh_row, 1), None, "only fresh")
        return Difference(
            table,
            _key(names, live_row, at),
            names[at],
            "changed",
            _value_text(live_row[at]),
            _value_text(fresh_row[at]),
        )


def _order(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _value_text(value: Any) -> str:
    return (value.hex() if isinstance(value, bytes) else str(value))[:_VALUE_CHARS]


def _key(names: Sequence[str], row: Sequence[Any], width: int) -> dict[str, str]:
    """The leading ``width`` columns, but not more than three: enough to find the row, not its text."""
    return dict(zip(names, map(_value_text, row[: min(width, 3)]), strict=False))
