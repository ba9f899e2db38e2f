"""Tables that keep history: a row counts from ``since_seq`` on and until, but not including, ``until_seq``.

Invariant: a key has at most one open row (``until_seq`` NULL) and at most one current row at any sequence; the rows do
not depend on the batches. Only the end of an open row is ever rewritten, so that the current rows at any sequence can
be queried (``schemas/core/table``: ``PRESENT``, ``as_of``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from ...schemas.core.table import R, Table
from ..projection import FoldTransaction


def succeed(tx: FoldTransaction, table: Table[R], rows: Sequence[R]) -> None:
    """Add rows in stream order; each ends the open row of its key.

    Args:
        tx: The batch's transaction.
        table: A table of this projection; its key does not contain ``since_seq``, which distinguishes the rows of a
            key.
        rows: New rows, open or ended; several may have the same key.
    """
    key_of = attrgetter(*table.key)
    last: dict[Any, R] = {}
    done: list[R] = []
    for row in rows:
        if (before := last.pop(key_of(row), None)) is None:
            _end_row(tx, table, {name: getattr(row, name) for name in table.key}, _since(row))
        elif _since(before) < _since(row):  # a row that begins and ends at the same sequence was never current
            done.append(_ended(before, _since(row)))
        last[key_of(row)] = row
    tx.add(table, [*done, *last.values()])


def end(tx: FoldTransaction, table: Table[Any], seq: int, **key: Any) -> None:
    """End the open row of a key at ``seq``."""
    _end_row(tx, table, key, seq)


def _end_row(tx: FoldTransaction, table: Table[R], key: Mapping[str, Any], seq: int) -> None:
    former = tx.get(table, **key, until_seq=None)
    if former:
        tx.delete(table, **key, until_seq=None)
        tx.add(table, [_ended(row, seq) for row in former if _since(row) < seq])


def _since(row: Any) -> int:
    return int(row.since_seq)


def _ended(row: Any, seq: int) -> Any:
    return row._replace(until_seq=min(seq, row.until_seq or seq))
