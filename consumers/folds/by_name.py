"""Rows of which there is one a (workspace, entry, model), as facts about an entry and a model make them.

Invariant: a table of such rows has a column ``key``, a 64-bit hash of the name, by which one scan of integers finds them;
two names of one hash stay two rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schemas.events.envelope import TokenBitsDerived, VectorDerived
from ..projection import FoldTransaction

Name = tuple[str, str, str]
"""Workspace, entry, model."""


def name_of(fact: VectorDerived | TokenBitsDerived) -> Name:
    """What a fact is about."""
    return fact.workspace_id, fact.entry_id, fact.model


def take_out(tx: FoldTransaction, table: str, keys: Mapping[Name, int], *columns: str) -> dict[Name, tuple[Any, ...]]:
    """Delete the rows of some names, which others are to replace.

    Args:
        tx: The batch's transaction.
        table: The fold's own.
        keys: Name → its hash.
        columns: What of the rows is asked for.

    Returns:
        Name → those columns, of the names that had a row.
    """
    found = tx.find(table, ("workspace_id", "entry_id", "model", *columns), list(keys.values()))
    rows = {(workspace, entry, model): tuple(rest) for workspace, entry, model, *rest in found}
    known = {name: rest for name, rest in rows.items() if name in keys}
    for name in known:
        tx.execute(
            f"DELETE FROM {table} WHERE key = ? AND workspace_id = ? AND entry_id = ? AND model = ?",
            [keys[name], *name],
        )
    return known
