"""``memory_importance``: how much each remembered entry counts, as decay, use and operators have made it.

Invariants (contract §6): the base follows the live priority at once, the score only at the next decay; the first vector of
an entry, of whatever model, gives its score and ``indexed_at``, later ones change nothing; time is the tick's ``due`` and
the events' own. Rows of entries without a vector hold what will count once there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded, VectorDerived
from ...schemas.events.memory import MemoryReferenced, PriorityChanged
from ...schemas.events.sweeps import SweepTicked
from ...schemas.ids import SYSTEM_WORKSPACE, name_key
from ...schemas.rules import importance as rules
from ...schemas.rules.importance import (
    BOOST_DIVISOR,
    DAY_MS,
    FADE_DAYS,
    LEAST_RECENCY,
    base_importance,
)
from ...schemas.timestamps import parse_ts, to_ms
from ...schemas.views import DECAYS, IMPORTANCE, IMPORTANCE_PROJECTION
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction, in_order

_COLUMNS: Final = (
    "key",
    "workspace_id",
    "entry_id",
    "entry_seq",
    "entry_type",
    "severity",
    "priority",
    "indexed_at",
    "base",
    "importance_score",
    "reference_count",
    "last_referenced_at",
)
_TYPES: Final = (
    *("UBIGINT", "VARCHAR", "VARCHAR", "UBIGINT", "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "DOUBLE", "DOUBLE"),
    *("BIGINT", "BIGINT"),
)
_REQUIRED: Final = frozenset({"key", "workspace_id", "entry_id", "reference_count"})
_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {IMPORTANCE} (""" + ", ".join(
    f"{name} {type_}{' NOT NULL' if name in _REQUIRED else ''}" for name, type_ in zip(_COLUMNS, _TYPES, strict=True)
) + ")"  # fmt: skip
"""``key`` is a 64-bit hash of (workspace, entry): rows are found by one scan of integers."""
_DECAYS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {DECAYS} (
    workspace_id VARCHAR NOT NULL, due_ms BIGINT NOT NULL, decayed BIGINT NOT NULL, seq UBIGINT NOT NULL)"""

_CHANGED: Final = _COLUMNS[3:]
_UPDATE: Final = (
    f"UPDATE {IMPORTANCE} AS old SET "
    + ", ".join(f"{name} = new.{name}" for name in _CHANGED)
    + " FROM (SELECT "
    + ", ".join(f"unnest(?::{type_}[]) AS {name}" for name, type_ in zip(_COLUMNS, _TYPES, strict=True))
    + ") AS new WHERE old.key = new.key AND old.workspace_id = new.workspace_id AND old.entry_id = new.entry_id"
)
DECAY_SQL: Final = f"""UPDATE {IMPORTANCE} SET importance_score = least(1.0, greatest(0.0,
    base * greatest({LEAST_RECENCY}, 1.0 - greatest(0, ?::BIGINT - indexed_at) / {DAY_MS} / {FADE_DAYS})
         * (1.0 + log2((greatest(0, reference_count) + 1)::DOUBLE) / {BOOST_DIVISOR})))
    WHERE workspace_id = ? AND indexed_at IS NOT NULL"""
"""``rules.importance.decayed`` of every row of a workspace; a test holds the two against each other, bit by bit."""

DECAY_SWEEP: Final = "decay"
MOST_REFERENCES: Final = 2**53
"""Where counting stops; no event may overflow a column."""

Name = tuple[str, str]
"""Workspace and entry."""


@dataclass(slots=True)
class _Row:
    """One entry; the fields are the table's columns, in their order."""

    key: int
    workspace_id: str
    entry_id: str
    entry_seq: int | None = None
    entry_type: str | None = None
    severity: str | None = None
    priority: str | None = None
    indexed_at: int | None = None
    base: float | None = None
    importance_score: float | None = None
    reference_count: int = 0
    last_referenced_at: int | None = None

    def index(self, fact: VectorDerived) -> bool:
        """The first vector: from now on the entry has an importance."""
        if self.indexed_at is not None:
            return False
        self.entry_seq, self.entry_type, self.severity = fact.entry_seq, fact.entry_type, fact.severity
        self.priority = self.priority or fact.priority
        self.indexed_at = fact.published_ms
        self.base = self.importance_score = base_importance(fact.entry_type, fact.severity, self.priority)
        return True

    def prioritise(self, priority: str) -> None:
        """The live priority changed: the base follows, the score waits for the next decay."""
        self.priority = priority
        if self.entry_type is not None and self.severity is not None:
            self.base = base_importance(self.entry_type, self.severity, priority)

    def refer(self, count: int, at_ms: int) -> None:
        """The entry reached prompts."""
        self.reference_count = min(self.reference_count + count, MOST_REFERENCES)
        self.last_referenced_at = max(at_ms, self.last_referenced_at or at_ms)


@dataclass(slots=True)
class _Change:
    """What one event does to one entry: a vector, another priority, or a number of references."""

    name: Name
    fact: VectorDerived | None = None
    priority: str | None = None
    references: int = 0
    at_ms: int = 0

    def apply(self, row: _Row) -> bool:
        """Whether the row is another one now."""
        if self.fact is not None:
            return row.index(self.fact)
        if self.priority is not None:
            row.prioritise(self.priority)
        else:
            row.refer(self.references, self.at_ms)
        return True


class ImportanceProjection:
    """Folds vectors, priorities, references and decay ticks."""

    name: ClassVar[str] = IMPORTANCE_PROJECTION
    version: ClassVar[int] = 100 + rules.VERSION
    ddl: ClassVar[tuple[str, ...]] = (_DDL, _DECAYS_DDL)
    tables: ClassVar[tuple[str, ...]] = (IMPORTANCE, DECAYS)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold the batch: what precedes a workspace's last decay, that decay, and what follows it.

        A decay starts from the base, so of several in one batch the last leaves no trace of those before it.
        """
        changes: list[tuple[int, _Change]] = []
        decays: dict[str, tuple[EntryRecorded, int]] = {}
        for event in in_order(batch.vectors, batch.controls):
            if isinstance(event, VectorDerived):
                if event.dim:
                    changes.append((event.seq, _Change((event.workspace_id, event.entry_id), fact=event)))
            elif event.entry.entry_type == SweepTicked.ENTRY_TYPE:
                if (due_ms := _decay_due(event)) is not None:
                    decays[event.workspace_id] = event, due_ms
            else:
                changes.extend((event.seq, change) for change in _changes(event))
        if not decays:
            _write([change for _, change in changes], tx)
            return
        last = {workspace: event.seq for workspace, (event, _) in decays.items()}
        later = [last.get(change.name[0], seq) < seq for seq, change in changes]
        _write([change for (_, change), is_later in zip(changes, later, strict=True) if not is_later], tx)
        for event, due_ms in decays.values():
            _decay(event, due_ms, tx)
        _write([change for (_, change), is_later in zip(changes, later, strict=True) if is_later], tx)


def _changes(event: EntryRecorded) -> Iterator[_Change]:
    workspace = event.workspace_id
    if event.entry.entry_type == PriorityChanged.ENTRY_TYPE:
        changed = payload_of(event, PriorityChanged)
        yield _Change((workspace, changed.target_entry_id), priority=changed.new_priority.value)
    elif event.entry.entry_type == MemoryReferenced.ENTRY_TYPE:
        for one in payload_of(event, MemoryReferenced).entries:
            yield _Change((workspace, one.entry_id), references=one.count, at_ms=event.ts_ms)


def _decay_due(event: EntryRecorded) -> int | None:
    """When a decay was due, milliseconds since the epoch; None for another sweep or the system's workspace."""
    tick = payload_of(event, SweepTicked)
    if tick.sweep != DECAY_SWEEP or event.workspace_id == SYSTEM_WORKSPACE:
        return None
    try:
        return to_ms(parse_ts(tick.due))
    except ValueError as error:
        raise FoldError(f"the sweep tick at {event.seq} has no valid due: {error}") from None


def _decay(event: EntryRecorded, due_ms: int, tx: FoldTransaction) -> None:
    [(decayed,)] = tx.rows(DECAY_SQL, [due_ms, event.workspace_id])
    tx.execute(f"DELETE FROM {DECAYS} WHERE workspace_id = ?", [event.workspace_id])
    tx.execute(f"INSERT INTO {DECAYS} VALUES (?, ?, ?, ?)", [event.workspace_id, due_ms, decayed, event.seq])


def _write(changes: Sequence[_Change], tx: FoldTransaction) -> None:
    """Load the rows that changes name, change them in order, write them back."""
    if not changes:
        return
    known = _load({change.name for change in changes}, tx)
    made: dict[Name, _Row] = {}
    changed: dict[Name, _Row] = {}
    for change in changes:
        row = known.get(change.name)
        if row is not None:
            if change.apply(row):
                changed[change.name] = row
            continue
        row = made.get(change.name)
        if row is None:
            row = made[change.name] = _Row(name_key(change.name), *change.name)
        change.apply(row)
    _insert(list(made.values()), tx)
    _update(list(changed.values()), tx)


def _load(names: set[Name], tx: FoldTransaction) -> dict[Name, _Row]:
    keys = list({name_key(name) for name in names})
    found = (_Row(*values) for values in tx.find(IMPORTANCE, _COLUMNS, keys))
    return {name: row for row in found if (name := (row.workspace_id, row.entry_id)) in names}


def _values(rows: Sequence[_Row], column: str) -> list[Any]:
    return [getattr(row, column) for row in rows]


def _insert(rows: Sequence[_Row], tx: FoldTransaction) -> None:
    if rows:
        columns: dict[str, Any] = {column: _values(rows, column) for column in _COLUMNS}
        columns["key"] = np.array(columns["key"], np.uint64)
        tx.insert(IMPORTANCE, columns)


def _update(rows: Sequence[_Row], tx: FoldTransaction) -> None:
    if rows:
        tx.execute(_UPDATE, [_values(rows, column) for column in _COLUMNS])


PROJECTION = ImportanceProjection
