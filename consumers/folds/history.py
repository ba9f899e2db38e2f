"""Tables that keep history: a row counts from ``since_seq`` on and until, but not including, ``until_seq``.

Invariant: of one key at most one row is open (``until_seq`` NULL), and no two rows of it count at the same sequence; which
rows there are does not depend on how the events were batched. Nothing is rewritten but the end of an open row, so what
counted at any sequence can be asked (``schemas/core/table``: ``PRESENT``, ``as_of``).
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
        table: An own table; its key does not name ``since_seq``, which distinguishes the rows of a key.
        rows: New rows, open ones or ones that end; two of one key may be among them.
    """
    key_of = attrgetter(*table.key)
    last: dict[Any, R] = {}
    done: list[R] = []
    for row in rows:
        if (before := last.pop(key_of(row), None)) is None:
            _end_row(tx, table, {name: getattr(row, name) for name in table.key}, _since(row))
        elif _since(before) < _since(row):  # what counted from a sequence to the same one never counted
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
