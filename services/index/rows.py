"""The rows that a hot index takes in: those that the views hold of its workspace, or those that one commit wrote.

Invariant: both give the same columns of the same declared tables, so loading and following are one function (``take``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.core.ids import hash64
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.table import Table
from .arrow import Found, Written, kept, present

END: Final = 2**63 - 1
"""No stream is so long."""


class Rows(Protocol):
    """Rows of one workspace."""

    def may_have(self, table: Table[Any]) -> bool:
        """Whether the table can have rows; if not, ``of`` need not be called."""
        ...

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> Found | None:
        """Columns of the rows with some values; None if there is no such row.

        Args:
            table: A declared table.
            columns: Which columns.
            order: The column by which the rows are sorted; what a commit wrote is in stream order anyway.
            equal: Columns and the values that the rows must have in them.
        """
        ...


class StoredRows:
    """The rows of the views; blocking, for a worker thread.

    Args:
        views: The views.
        workspace_id: The workspace.
        upto: Rows about later entries are left out.
    """

    def __init__(self, views: ViewReader, workspace_id: str, upto: int = END) -> None:
        self.views = views
        self.workspace_id = workspace_id
        self._upto = upto

    def may_have(self, _: Table[Any]) -> bool:
        """See ``Rows``."""
        return True

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> pa.Table | None:
        """See ``Rows``."""
        where = [f"{name} = ?" for name in (table.workspace, *equal)]
        workspace = hash64(self.workspace_id) if table.workspace == "ws" else self.workspace_id
        values = [workspace, *equal.values()]
        if table.document is not None:
            where.append(f"{table.document} <= ?")
            values.append(self._upto)
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {' AND '.join(where)}"
        arrow: pa.Table = self.views.columns(sql if order is None else f"{sql} ORDER BY {order}", values)
        return arrow if arrow.num_rows else None


class Commit:
    """The changes of one commit by workspace, made once for all indexes."""

    def __init__(self, batch: CommittedBatch) -> None:
        self.last_seq = batch.last_seq
        self.projections = batch.projections
        self.changes = batch.changes
        self._written: dict[str, Mapping[str, Any] | None] = {}

    def rows(self, workspace_id: str) -> CommittedRows:
        """The written rows of a workspace."""
        return CommittedRows(self, workspace_id)

    def written(self, table: Table[Any]) -> Mapping[str, Any] | None:
        """The columns of a table that were written; None if there are none."""
        if table.name not in self._written:
            changes = self.changes.get(table.name)
            self._written[table.name] = None if changes is None else _joined(changes.written)
        return self._written[table.name]

    def removed(self, table: Table[Any]) -> Sequence[Mapping[str, Any]]:
        """Rows with these values in these columns are gone."""
        changes = self.changes.get(table.name)
        return changes.removed if changes is not None else ()

    def rewrote(self, table: Table[Any], workspace_id: str) -> bool:
        """Whether so many rows of a workspace were changed that the table is to be read again."""
        changes = self.changes.get(table.name)
        return changes is not None and workspace_id in changes.rewritten


class CommittedRows:
    """The rows that one commit wrote in a workspace."""

    def __init__(self, commit: Commit, workspace_id: str) -> None:
        self._commit = commit
        self._keys: dict[str, str | int] = {"workspace_id": workspace_id, "ws": hash64(workspace_id)}
        self._own: dict[str, Written | None] = {}

    def may_have(self, table: Table[Any]) -> bool:
        """See ``Rows``."""
        return table.name in self._commit.changes

    def of(self, table: Table[Any], *columns: str, order: str | None = None, **equal: Any) -> Written | None:
        """See ``Rows``."""
        if table.name not in self._commit.changes:
            return None
        if table.name not in self._own:
            written = self._commit.written(table)
            arrow = None if written is None else _where(Written(written), table.workspace, self._keys[table.workspace])
            if arrow is not None and table.document is not None:
                arrow = present(arrow, table.document)
            self._own[table.name] = arrow
        arrow = self._own[table.name]
        for name, value in equal.items():
            arrow = None if arrow is None else _where(arrow, name, value)
        return arrow


def _where(written: Written, name: str, value: Any) -> Written | None:
    column = written.column(name)
    if isinstance(column, np.ndarray):
        return _kept(written, column == value)
    count = column.count(value)
    if count in (0, len(column)):
        return written if count else None
    return _kept(written, np.array([item == value for item in column], bool))


def _kept(written: Written, mask: npt.NDArray[np.bool_]) -> Written | None:
    return kept(written, mask) if mask.any() else None


def _joined(written: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The columns of several writes, one after the other."""
    if len(written) < 2:
        return written[0] if written else None
    columns = {name: [part[name] for part in written] for name in written[0]}
    return {
        name: np.concatenate(parts) if isinstance(parts[0], np.ndarray) else list(chain.from_iterable(parts))
        for name, parts in columns.items()
    }
