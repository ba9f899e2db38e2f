"""``memory_importance``: the importance of each entry, which depends on decay, use and operators' priorities.

Invariants (contract §6): the base changes with the live priority at once, the score only at the next decay. An entry's
first vector, from any model, sets its score and ``indexed_at``; later vectors change nothing. Times come from the
tick's ``due`` and from events. Rows of entries without a vector store the values for the time when a vector exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ...schemas.core.envelope import EntryRecorded, VectorDerived
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import SYSTEM_WORKSPACE, name_key
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import DAY_MS, parse_ts, to_ms
from ...schemas.recall.events import MemoryReferenced, MemorySearched, PriorityChanged
from ...schemas.standing import rules
from ...schemas.standing.rules import BOOST_DIVISOR, FADE_DAYS, LEAST_RECENCY, base_importance
from ...schemas.standing.tables import DECAYS, IMPORTANCE, IMPORTANCE_PROJECTION, DecayRow, ImportanceRow
from ...schemas.sweeps.events import SweepTicked
from ...schemas.sweeps.rules import DECAY
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction, in_order

DECAY_SQL: Final = f"""UPDATE {IMPORTANCE} SET importance_score = least(1.0, greatest(0.0,
    base * greatest({LEAST_RECENCY}, 1.0 - greatest(0, ?::BIGINT - indexed_at) / {DAY_MS} / {FADE_DAYS})
         * (1.0 + log2((greatest(0, reference_count) + 1)::DOUBLE) / {BOOST_DIVISOR})))
    WHERE workspace_id = ? AND indexed_at IS NOT NULL"""
"""``schemas.standing.rules.decayed`` as SQL for every row of a workspace; a test compares both bit by bit."""

MOST_REFERENCES: Final = 2**53
"""Maximum of the counters, so that no event overflows a column."""

Name = tuple[str, str]
"""Workspace and entry."""


@dataclass(slots=True)
class _Change:
    """What one event does to one entry: a vector, another priority, or a number of references."""

    name: Name
    fact: VectorDerived | None = None
    priority: str | None = None
    references: int = 0
    at_ms: int = 0

    def of(self, row: ImportanceRow) -> ImportanceRow:
        """The changed row; the same object if nothing changes."""
        if self.fact is not None:
            return _indexed(row, self.fact)
        if self.priority is not None:
            return _prioritised(row, self.priority)
        return row._replace(
            reference_count=min(row.reference_count + self.references, MOST_REFERENCES),
            last_referenced_at=max(self.at_ms, row.last_referenced_at or self.at_ms),
        )


def _indexed(row: ImportanceRow, fact: VectorDerived) -> ImportanceRow:
    """The first vector: from now on the entry has an importance."""
    if row.indexed_at is not None:
        return row
    priority = row.priority or fact.priority
    base = base_importance(fact.entry_type, fact.severity, priority)
    return row._replace(
        entry_seq=fact.entry_seq,
        entry_type=fact.entry_type,
        severity=fact.severity,
        priority=priority,
        indexed_at=fact.published_ms,
        base=base,
        importance_score=base,
    )


def _prioritised(row: ImportanceRow, priority: str) -> ImportanceRow:
    """The live priority changed: the base follows, the score waits for the next decay."""
    if row.entry_type is None or row.severity is None:
        return row._replace(priority=priority)
    return row._replace(priority=priority, base=base_importance(row.entry_type, row.severity, priority))


class ImportanceProjection:
    """Folds vectors, priorities, references and decay ticks."""

    name: ClassVar = IMPORTANCE_PROJECTION
    version: ClassVar = 100 + rules.VERSION
    tables: ClassVar[Tables] = (IMPORTANCE, DECAYS)
    folds: ClassVar = (VectorDerived, SweepTicked, PriorityChanged, MemoryReferenced, MemorySearched)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold the batch: what precedes a workspace's last decay, that decay, and what follows it.

        A decay starts from the base, so that of several decays in a batch only the last matters.
        """
        changes: list[tuple[int, _Change]] = []
        decays: dict[str, tuple[EntryRecorded, int]] = {}
        for event in in_order(batch.vectors, batch.control(*self.folds[1:])):
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
    elif event.entry.entry_type == MemorySearched.ENTRY_TYPE and event.entry.payload.get("rendered"):
        for entry_id in payload_of(event, MemorySearched).rendered or ():
            yield _Change((workspace, entry_id), references=1, at_ms=event.ts_ms)


def _decay_due(event: EntryRecorded) -> int | None:
    """When a decay was due, milliseconds since the epoch; None for another sweep or the system's workspace."""
    tick = payload_of(event, SweepTicked)
    if tick.sweep != DECAY.name or event.workspace_id == SYSTEM_WORKSPACE:
        return None
    try:
        return to_ms(parse_ts(tick.due))
    except ValueError as error:
        raise FoldError(f"the sweep tick at {event.seq} has no valid due: {error}") from None


def _decay(event: EntryRecorded, due_ms: int, tx: FoldTransaction) -> None:
    decayed = tx.rewrite(IMPORTANCE, event.workspace_id, DECAY_SQL, [due_ms, event.workspace_id])
    tx.replace(DECAYS, [DecayRow(event.workspace_id, due_ms, decayed, event.seq)])


def _write(changes: Sequence[_Change], tx: FoldTransaction) -> None:
    """Load the changed rows, apply the changes in order, and write the rows back."""
    if not changes:
        return
    names = {change.name for change in changes}
    former = tx.find(IMPORTANCE, list({name_key(name) for name in names}))
    rows = {name: row for row in former if (name := (row.workspace_id, row.entry_id)) in names}
    changed: dict[Name, ImportanceRow] = {}
    for change in changes:
        before = rows.get(change.name) or ImportanceRow(name_key(change.name), *change.name)
        after = rows[change.name] = change.of(before)
        if after is not before:
            changed[change.name] = after
    named = {row.key for row in changed.values()}
    tx.replace(IMPORTANCE, list(changed.values()), [row for row in former if row.key in named])


PROJECTION = ImportanceProjection
