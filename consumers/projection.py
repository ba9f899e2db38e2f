"""The protocol of a projection: a pure fold of events into its own DuckDB tables.

Invariant: no clock, no randomness, no network, no model and no setting inside ``apply``; the same events in any batching
give the same rows. A projection reads and writes only the tables it names (proven by
``tests/contract``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

from ..schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    ErasedReceived,
    Event,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from ..schemas.core.payload import ControlPayload
from ..schemas.core.table import R, Table, Tables

SHARED_POSTINGS: Final = "postings"
"""Key in ``Batch.shared`` of the posting columns, which the preparation computes for the fold."""
SHARED_TURNS: Final = "turns"
"""Key in ``Batch.shared`` of the columns of turns, likewise."""

Folds = tuple[type[ControlPayload] | type[Event], ...]

_A = TypeVar("_A", bound=Event)
_B = TypeVar("_B", bound=Event)


@dataclass(frozen=True)
class Batch:
    """Consecutive events of JOURNAL that one transaction folds.

    Attributes:
        events: Admitted events in stream order: parked messages and repeats of an id are not among them.
        first_seq: First stream sequence covered, including gaps and skipped messages.
        last_seq: Last stream sequence covered; the checkpoint after the commit.
    """

    events: Sequence[Event]
    first_seq: int
    last_seq: int
    shared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Values that one fold computed from the events alone and others may use (``tokens``, ``postings``); never state."""

    @cached_property
    def entries(self) -> list[EntryRecorded]:
        """The entries among the events."""
        return [event for event in self.events if isinstance(event, EntryRecorded)]

    @cached_property
    def vectors(self) -> list[VectorDerived]:
        """The vector facts among the events."""
        return [event for event in self.events if isinstance(event, VectorDerived)]

    @cached_property
    def links(self) -> list[LinkDerived]:
        """The link facts among the events."""
        return [event for event in self.events if isinstance(event, LinkDerived)]

    @cached_property
    def token_bits(self) -> list[TokenBitsDerived]:
        """The facts about tokens in context among the events."""
        return [event for event in self.events if isinstance(event, TokenBitsDerived)]

    @cached_property
    def chunk_vectors(self) -> list[ChunkVectorDerived]:
        """The vectors of texts of documents among the events."""
        return [event for event in self.events if isinstance(event, ChunkVectorDerived)]

    @cached_property
    def documents(self) -> list[DocumentWritten]:
        """The writes of documents among the events."""
        return [event for event in self.events if isinstance(event, DocumentWritten)]

    @cached_property
    def late(self) -> list[ErasedReceived]:
        """The messages that came after they were erased."""
        return [event for event in self.events if isinstance(event, ErasedReceived)]

    @cached_property
    def _controls(self) -> list[EntryRecorded]:
        """The control entries among the events: there are few, and most folds read only them."""
        return [event for event in self.entries if event.control]

    def control(self, *payloads: type[ControlPayload]) -> list[EntryRecorded]:
        """The control entries with these payloads, in stream order."""
        types = {payload.ENTRY_TYPE for payload in payloads}
        return [event for event in self._controls if event.entry.entry_type in types]


def in_order(facts: Sequence[_A], entries: Sequence[_B]) -> list[_A | _B]:
    """Events of two kinds in stream order, for folds that depend on the order."""
    events: list[_A | _B] = [*facts, *entries]
    events.sort(key=attrgetter("seq"))
    return events


class FoldTransaction(Protocol):
    """The operations of a fold inside the batch's transaction."""

    def insert(self, table: Table[Any], columns: Mapping[str, Any]) -> None:
        """Append rows given as equally long columns (numpy arrays or lists)."""
        ...

    def add(self, table: Table[R], rows: Sequence[R]) -> None:
        """Append rows."""
        ...

    def replace(self, table: Table[R], rows: Sequence[R], former: Sequence[R] | None = None) -> None:
        """Replace the rows with the same keys; ``rows`` has no two rows with the same key.

        Args:
            table: An own table with a key.
            rows: The rows.
            former: The result of ``find`` for their keys, for tables with a column ``key``.
        """
        ...

    def delete(self, table: Table[Any], **values: Any) -> None:
        """Delete the rows that have all of these values."""
        ...

    def get(self, table: Table[R], **values: Any) -> list[R]:
        """The rows that have all of these values."""
        ...

    def find(self, table: Table[R], keys: Sequence[int]) -> list[R]:
        """The rows of an own table with one of ``keys`` in its column ``key``; almost free if there are no such rows.

        Of a table that keeps history these are the current ones, which ``replace`` then replaces; ended ones stay.
        """
        ...

    def whole(self, table: Table[R]) -> Sequence[R]:
        """All rows of a small table of this projection; cached until the table changes."""
        ...

    def rewrite(self, table: Table[Any], workspace_id: str, sql: str, params: Sequence[Any] = ()) -> int:
        """Run an ``UPDATE`` of many rows of a workspace, which indexes then read again; the number of changed rows."""
        ...

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Run one statement on the projection's tables that changes no column of an in-memory index."""
        ...

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read from the projection's own tables."""
        ...


@runtime_checkable
class Projection(Protocol):
    """One view: its tables and its fold.

    Attributes:
        name: Names the checkpoint; never reused for another meaning.
        version: Raised whenever the same events would give other rows; the host then rebuilds the view.
        tables: Its own tables (``schemas/<family>/tables``).
        folds: The payloads and events that it reads from a batch, and no others (proven by ``tests/contract``):
            ``EntryRecorded`` for entries of every type, a payload class for control entries of its type.

    Optional: ``scratch``, names of temporary tables that its SQL may make (``CREATE OR REPLACE TEMP TABLE … AS SELECT``) and
    drop within one fold.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    tables: ClassVar[Tables]

    @property
    def folds(self) -> Folds:
        """The payloads and events that it reads from a batch."""
        ...

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold one batch.

        Raises:
            FoldError: If an event cannot be folded; the host finds it, parks it and folds the rest.
        """
        ...
