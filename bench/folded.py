"""What the folds of a node say of some events, as the hot indexes are given it, without a broker and without DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.projection import Batch
from crew_journal.schemas.core.envelope import Event
from crew_journal.schemas.core.ports import Changes, CommittedBatch, TableChanges
from crew_journal.schemas.core.table import Table
from crew_journal.schemas.entries.tables import RUNS
from crew_journal.services.index.rows import Commit


class Folded:
    """The folds of all views, with the rows of tables that have a key in memory; a ``FoldTransaction``."""

    def __init__(self) -> None:
        self._projections = discover_projections()
        self._rows: dict[str, list[Any]] = {}
        self._changes: Changes = {}

    def commit(self, events: Sequence[Event], last_seq: int) -> Commit:
        """What one commit of these events tells."""
        self._changes = {}
        batch = Batch(sorted(events, key=attrgetter("seq")), 0, last_seq)
        for projection in self._projections:
            projection.apply(batch, self)
        names = frozenset(projection.name for projection in self._projections)
        return Commit(CommittedBatch(0, last_seq, batch.entries, names, self._changes))

    def insert(self, table: Table[Any], columns: Mapping[str, Any]) -> None:
        """See ``FoldTransaction``."""
        self._changes.setdefault(table.name, TableChanges()).written.append(columns)

    def add(self, table: Table[Any], rows: Sequence[Any]) -> None:
        """See ``FoldTransaction``."""
        if rows:
            self.insert(table, dict(zip(rows[0]._fields, zip(*rows, strict=True), strict=True)))
            self._rows.setdefault(table.name, []).extend(rows)

    def replace(self, table: Table[Any], rows: Sequence[Any], former: Sequence[Any] | None = None) -> None:
        """See ``FoldTransaction``."""
        named = attrgetter(*table.key)
        replaced = set(map(named, rows))
        self._rows[table.name] = [row for row in self.whole(table) if named(row) not in replaced]
        self.add(table, rows)

    def delete(self, table: Table[Any], **values: Any) -> None:
        """See ``FoldTransaction``."""
        gone = self.get(table, **values)
        self._rows[table.name] = [row for row in self.whole(table) if row not in gone]
        self._changes.setdefault(table.name, TableChanges()).removed.append(values)

    def get(self, table: Table[Any], **values: Any) -> list[Any]:
        """See ``FoldTransaction``."""
        return [row for row in self.whole(table) if all(getattr(row, name) == value for name, value in values.items())]

    def find(self, table: Table[Any], keys: Sequence[int]) -> list[Any]:
        """See ``FoldTransaction``."""
        wanted = set(keys)
        return [row for row in self.whole(table) if row.key in wanted]

    def whole(self, table: Table[Any]) -> Sequence[Any]:
        """See ``FoldTransaction``."""
        return self._rows.get(table.name, [])

    def rewrite(self, table: Table[Any], workspace_id: str, sql: str, params: Sequence[Any] = ()) -> int:
        """See ``FoldTransaction``."""
        raise NotImplementedError(sql)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """See ``FoldTransaction``."""
        if RUNS.name not in sql:  # where the sealed postings lie is of no use here
            raise NotImplementedError(sql)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See ``FoldTransaction``."""
        return [(0, 0, 0)]  # how long the tail of the postings is
