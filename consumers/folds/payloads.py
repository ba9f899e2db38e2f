"""Reads the payloads of control entries as the models of their types, for folds; writes objects for tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import orjson
from pydantic import ValidationError

from ...schemas.catalogue import info_of
from ...schemas.core.entry import JournalEntry, problems_of
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.payload import ControlPayload
from ...schemas.core.table import R, Table
from ...schemas.entries.events import MemoryCompacted
from ...schemas.models.events import MODEL_DECISIONS, EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from ...schemas.models.tables import DroppedRow, ModelState
from ..projection import Batch, FoldTransaction, in_order

# Tables that keep history: a row counts from ``since_seq`` on and until, but not including, ``until_seq``.
#
# Invariant: a key has at most one open row (``until_seq`` NULL) and at most one current row at any sequence; the rows
# do not depend on the batches. Only the end of an open row is ever rewritten, so that the current rows at any sequence
# can be queried (``schemas/core/table``: ``PRESENT``, ``as_of``).


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


class Current(Generic[R]):
    """The current rows of a table with history that a batch concerns: read once, changed in stream order, written once.

    Args:
        tx: The batch's transaction.
        table: A table of this projection with a column ``key``. Rows are named by its key without ``since_seq``.
        keys: The values of ``key`` that the batch may change.
    """

    def __init__(self, tx: FoldTransaction, table: Table[R], keys: Iterable[int]) -> None:
        self._tx = tx
        self._table = table
        self._name_of = attrgetter(*(name for name in table.key if name != "since_seq"))
        self._read: set[int] = set()
        self.before: dict[Any, R] = {}
        self.present: dict[Any, R] = {}
        self._ended: list[R] = []
        self.changed: dict[Any, None] = {}
        self.read(keys)

    def read(self, keys: Iterable[int]) -> None:
        """Read further keys; rows that the batch changed stay as it left them."""
        unread = set(keys) - self._read
        self._read |= unread
        found = {self._name_of(row): row for row in self._tx.find(self._table, sorted(unread))} if unread else {}
        self.before |= found
        self.present = found | self.present

    def put(self, row: R) -> None:
        """Let a row follow the current one of its name."""
        name = self._name_of(row)
        self.end(name, _since(row))
        self.present[name] = row
        self.changed[name] = None

    def end(self, name: Any, seq: int, **values: Any) -> None:
        """End the current row of a name, with these values; one that began at the same sequence was never current."""
        row: Any = self.present.pop(name, None)
        if row is not None:
            self.changed[name] = None
            if _since(row) < seq:
                self._ended.append(row._replace(until_seq=seq, **values))

    def last(self, name: Any) -> R | None:
        """The current row of a name, else the one that ended last."""
        if name in self.present:
            return self.present[name]
        here = [row for row in self._ended if self._name_of(row) == name]
        return max(here or self._tx.get(self._table, **self._named(name)), key=attrgetter("until_seq"), default=None)

    def _named(self, name: Any) -> dict[str, Any]:
        columns = [column for column in self._table.key if column != "since_seq"]
        return dict(zip(columns, name if len(columns) > 1 else (name,), strict=True))

    def write(self) -> None:
        """Write what changed; a name without a current row is announced as removed."""
        for name in self.changed.keys() & self.before.keys() - self.present.keys():
            self._tx.delete(self._table, **self._named(name), until_seq=None)
        current = sorted((self.present[name] for name in self.changed if name in self.present), key=_since)
        keys = {row.key for row in current}  # type: ignore[attr-defined] # a NamedTuple with a key
        former = [row for name, row in self.before.items() if name in self.present and row.key in keys]  # type: ignore[attr-defined]
        self._tx.replace(self._table, [*self._ended, *current], former)


P = TypeVar("P", bound=ControlPayload)


def payload_of(event: EntryRecorded, model: type[P]) -> P:
    """The payload of a control entry.

    Raises:
        FoldError: If it is not a valid ``model``; names the fields, never their text.
    """
    try:
        return model.model_validate(event.entry.payload)
    except ValidationError as error:
        fields = ", ".join(sorted({problem.field for problem in problems_of(error)})[:5])
        raise FoldError(f"the payload of {model.ENTRY_TYPE} at {event.seq} is not valid: {fields}") from None


def decisions(batch: Batch, *models: type[P]) -> Iterator[tuple[EntryRecorded, P]]:
    """The control entries of a batch with these payloads, and their payloads, in stream order.

    Raises:
        FoldError: At an entry whose payload is not valid.
    """
    by_type = {model.ENTRY_TYPE: model for model in models}
    for event in batch.control(*models):
        yield event, payload_of(event, by_type[event.entry.entry_type])


def shown_payload(entry: JournalEntry) -> dict[str, Any]:
    """The payload for lists and searches: empty if its type is private."""
    return {} if info_of(entry.entry_type).private else entry.payload


def json_text(value: Mapping[str, Any]) -> str:
    """``value`` as compact JSON; unlike orjson, with integers beyond 64 bits."""
    if not value:
        return "{}"
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# The decisions about embedding models in control entries, for every fold with rows of a model.


@dataclass(frozen=True, slots=True)
class ModelDecision:
    """A decision about a model; ``embedder`` is the kind that runs it, None if the model is dropped."""

    model: str
    state: ModelState
    embedder: str | None


def model_decision(event: EntryRecorded) -> ModelDecision | None:
    """The decision of a control entry of ``MODEL_DECISIONS``; None if its workspace may not make it.

    Raises:
        FoldError: If its payload is not valid.
    """
    kind = event.entry.entry_type
    if kind == EmbeddingsActivated.ENTRY_TYPE:
        activated = payload_of(event, EmbeddingsActivated)
        return ModelDecision(activated.model, ModelState.ACTIVATED, activated.embedder)
    if event.workspace_id != SYSTEM_WORKSPACE:
        return None
    if kind == EmbeddingsAdded.ENTRY_TYPE:
        added = payload_of(event, EmbeddingsAdded)
        return ModelDecision(added.model, ModelState.ADDED, added.embedder)
    return ModelDecision(payload_of(event, EmbeddingsDropped).model, ModelState.DROPPED, None)


def fold_by_model(
    facts: Sequence[Any],
    batch: Batch,
    tx: FoldTransaction,
    table: Table[R],
    dropped_table: Table[DroppedRow],
    row_of: Callable[[Any], R],
) -> None:
    """Upsert the rows of a batch's facts, and forget those of models that it drops; ``dropped_table`` names all dropped."""
    decisions = batch.control(*MODEL_DECISIONS)
    if not facts and not decisions:
        return
    dropped = {row.model for row in tx.whole(dropped_table)}
    rows: dict[Any, Any] = {}
    name_of = attrgetter(*table.key)
    for event in in_order(facts, decisions):
        if not isinstance(event, EntryRecorded):
            if event.model not in dropped:
                row = row_of(event)
                rows[name_of(row)] = row
        elif (decision := model_decision(event)) is not None:
            model, drops = decision.model, decision.state is ModelState.DROPPED
            if drops and model not in dropped:
                tx.add(dropped_table, [DroppedRow(model)])
                tx.delete(table, model=model)
                rows = {name: row for name, row in rows.items() if row.model != model}
                dropped.add(model)
            elif not drops and model in dropped:
                tx.delete(dropped_table, model=model)
                dropped.remove(model)
    if rows:
        tx.replace(table, list(rows.values()), tx.find(table, list({row.key for row in rows.values()})))


# The entries that the compactions of a batch archive, for every fold with rows about them.


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction event, its payload and the sequences that it archives, ascending and all before the event."""

    event: EntryRecorded
    payload: MemoryCompacted
    sequences: list[int]


def compactions(batch: Batch) -> list[Compaction]:
    """The compactions of a batch, in stream order.

    Raises:
        FoldError: If one is not valid, or names a sequence that does not come before it.
    """
    return [_read(event) for event in batch.control(MemoryCompacted)]


def _read(event: EntryRecorded) -> Compaction:
    payload = payload_of(event, MemoryCompacted)
    ranges = payload.entries.ranges
    if ranges[-1][1] >= event.seq:
        raise FoldError(f"the compaction at {event.seq} names the sequence {ranges[-1][1]}, which is not before it")
    return Compaction(event, payload, [seq for first, last in ranges for seq in range(first, last + 1)])
