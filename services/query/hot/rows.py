"""The rows that a hot index takes in: those that the views hold of its workspace, or those that one commit wrote.

Invariant: both give the same columns of the same declared tables, so loading and following are one function (``take``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....schemas.ids import hash64
from ....schemas.ports import CommittedBatch, ViewReader
from ....schemas.views import Table
from .arrow import FEW, dictionary, kept

END: Final = 2**63 - 1
"""No stream is so long."""


class Rows(Protocol):
    """Rows of one workspace."""

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> pa.Table | None:
        """Columns of the rows with some values; None if there is no such row.

        Args:
            table: A declared table.
            columns: Which columns.
            order: The column by which the rows are sorted; what a commit wrote is in stream order anyway.
            equal: Columns and the values that the rows must have in them.
        """
        ...


class StoredRows:
    """What the views hold; blocking, for a worker thread.

    Args:
        views: The views.
        workspace_id: The workspace.
        upto: Rows about later entries are left out.
    """

    def __init__(self, views: ViewReader, workspace_id: str, upto: int = END) -> None:
        self.views = views
        self.workspace_id = workspace_id
        self._upto = upto

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> pa.Table | None:
        """See ``Rows``."""
        where = [f"{name} = ?" for name in (table.workspace, *equal)]
        workspace = hash64(self.workspace_id) if table.workspace == "ws" else self.workspace_id
        values = [workspace, *equal.values()]
        if table.document is not None:
            where.append(f"{table.document} <= ?")
            values.append(self._upto)
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {' AND '.join(where)}"
        found: pa.Table = self.views.columns(sql if order is None else f"{sql} ORDER BY {order}", values)
        return found if found.num_rows else None


class Commit:
    """What one commit changed, by workspace; made once, however many indexes follow it."""

    def __init__(self, batch: CommittedBatch) -> None:
        self.last_seq = batch.last_seq
        self.projections = batch.projections
        self._changes = batch.changes
        self._tables: dict[str, Mapping[Any, pa.Table]] = {}

    def rows(self, workspace_id: str) -> CommittedRows:
        """What was written of a workspace."""
        return CommittedRows(self, workspace_id)

    def written(self, table: Table[Any], workspace: str | int) -> pa.Table | None:
        """The rows of a table that were written of a workspace, named as the table names it."""
        known = self._tables.get(table.name)
        if known is None:
            changes = self._changes.get(table.name)
            known = self._tables[table.name] = {} if changes is None else _by_workspace(changes.written, table)
        return known.get(workspace)

    def removed(self, table: Table[Any]) -> Sequence[Mapping[str, Any]]:
        """Rows with these values in these columns are gone."""
        changes = self._changes.get(table.name)
        return changes.removed if changes is not None else ()

    def rewrote(self, table: Table[Any], workspace_id: str) -> bool:
        """Whether so many rows of a workspace were changed that the table is to be read again."""
        changes = self._changes.get(table.name)
        return changes is not None and workspace_id in changes.rewritten


class CommittedRows:
    """What one commit wrote of a workspace."""

    def __init__(self, commit: Commit, workspace_id: str) -> None:
        self._commit = commit
        self._keys: dict[str, str | int] = {"workspace_id": workspace_id, "ws": hash64(workspace_id)}

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> pa.Table | None:
        """See ``Rows``."""
        found = self._commit.written(table, self._keys[table.workspace])
        if found is None:
            return None
        for name, value in equal.items():
            column = found.column(name)
            names, codes = (column.to_pylist(), None) if len(column) <= FEW else dictionary(column)
            if value not in names:
                return None
            found = kept(
                found, np.array([one == value for one in names]) if codes is None else codes == names.index(value)
            )
        if table.document is not None and (about := found.column(table.document)).null_count:
            found = found.filter(pc.is_valid(about))
        return found.select(columns) if found.num_rows else None


def _by_workspace(written: Sequence[pa.Table], table: Table[Any]) -> dict[Any, pa.Table]:
    parts: dict[Any, list[pa.Table]] = {}
    for rows in written:
        column = rows.column(table.workspace)
        if len(column) <= FEW and len(only := set(column.to_pylist())) == 1:
            parts.setdefault(only.pop(), []).append(rows)
            continue
        names, codes = dictionary(column)
        for code, name in enumerate(names):
            parts.setdefault(name, []).append(kept(rows, codes == code))
    return {name: pa.concat_tables(some) if len(some) > 1 else some[0] for name, some in parts.items()}
