"""Finds the sequences missing from JOURNAL, the events that explain them, and the lost entries that the views still have.

Invariant: only a later ``erasure.scoped`` or ``journal.loss_accepted`` explains a missing sequence. Every other
sequence that a read does not return is damage. nats-server silently skips a message with a wrong checksum and still
counts it (measured with 2.15.1), so every read checks which sequences it received.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...schemas.core.errors import JournalDamaged
from ...schemas.core.sequence_set import Range, normalised, sequences_text, without
from ...schemas.entries.events import EXPLANATIONS, ErasureScoped, LossAccepted
from ...schemas.entries.tables import ENTRIES
from ..feed.messages import RawMessage
from .admission import ADMISSION_TABLE
from .bulk import ReplaySource
from .store import ViewStore

EXPLAINING: Final = (
    f"SELECT seq, workspace_id, entry_type, payload FROM {ENTRIES} "
    "WHERE {rows} AND control AND entry_type IN (?, ?) ORDER BY seq"
)
"""Query for erasures and accepted losses among the rows that fulfil a condition."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why sequences may be missing.

    Attributes:
        ranges: Sequences that were erased or whose loss was accepted.
        erased: Sequences that were erased.
        erased_ids: (workspace, entry id) of erased entries.
    """

    ranges: list[Range]
    erased: list[Range]
    erased_ids: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lack:
    """Data that is missing from the stream.

    Attributes:
        sequences: Missing sequences without an explanation.
        known: Sequences of entries that the views know and the stream does not hold.
        ids: (workspace, id) of these entries, in the same order.
    """

    sequences: list[Range]
    known: list[int]
    ids: list[tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.sequences or self.known)


def explained(store: ViewStore) -> Explained:
    """The erasures and accepted losses in the views; blocking."""
    if ENTRIES.name not in store.tables():
        return Explained([], [], frozenset())
    return explained_by(store.rows(EXPLAINING.format(rows="TRUE"), list(EXPLANATIONS)))


def explained_by(rows: Iterable[tuple[int, str, str, str]]) -> Explained:
    """The sequences and ids that rows of ``EXPLAINING`` explain."""
    lost: list[Range] = []
    erased: list[Range] = []
    ids: set[tuple[str, str]] = set()
    for seq, workspace, entry_type, payload in rows:
        if entry_type == ErasureScoped.ENTRY_TYPE:
            scope = ErasureScoped.model_validate_json(payload).scope
            ids.update((workspace, entry_id) for entry_id in scope.ids)
            erased += _before(scope.ranges, seq)
        else:
            lost += _before(LossAccepted.model_validate_json(payload).lost.ranges, seq)
    erased = normalised(erased)
    return Explained(normalised([*lost, *erased]), erased, frozenset(ids))


def _before(ranges: Sequence[Range], seq: int) -> list[Range]:
    return [(first, min(last, seq - 1)) for first, last in ranges if first < seq]


class ReadAccount:
    """Records the sequences that a read of the stream did not return."""

    def __init__(self) -> None:
        self._missing: list[Range] = []

    @property
    def missing(self) -> list[Range]:
        """The missing sequences as ranges."""
        self._missing = normalised(self._missing)
        return self._missing

    def account(self, expected: int, messages: Sequence[RawMessage]) -> int:
        """Record the gaps between ``expected`` and the ascending messages; returns the next expected sequence."""
        if messages and messages[-1].seq - expected + 1 == len(messages):
            return messages[-1].seq + 1
        for message in messages:
            if message.seq > expected:
                self._missing.append((expected, message.seq - 1))
            expected = max(expected, message.seq + 1)
        return expected

    def end(self, expected: int, last_seq: int) -> None:
        """Record that a read ended before ``last_seq``."""
        if expected <= last_seq:
            self._missing.append((expected, last_seq))

    def add(self, ranges: Sequence[Range]) -> None:
        """Record sequences that another read did not return."""
        self._missing += ranges

    def counted(self, source: ReplaySource) -> ReplaySource:
        """The same source, whose gaps up to the last requested sequence are recorded."""

        async def read(first_seq: int, last_seq: int) -> AsyncGenerator[list[RawMessage], None]:
            expected = first_seq
            async with _closing(source(first_seq, last_seq)) as batches:
                async for batch in batches:
                    expected = self.account(expected, batch)
                    yield batch
            self.end(expected, last_seq)

        return read


@contextlib.asynccontextmanager
async def _closing(source: AsyncIterator[list[RawMessage]]) -> AsyncIterator[AsyncIterator[list[RawMessage]]]:
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def read_through(source: ReplaySource, last_seq: int) -> list[Range]:
    """Read the stream to ``last_seq`` without folding; returns the missing sequences."""
    account = ReadAccount()
    async for _ in account.counted(source)(1, last_seq):
        pass
    return account.missing


def lack_of(live: ViewStore, fresh: ViewStore, missing: Sequence[Range], explains: Explained) -> Lack:
    """The entries and sequences that are missing from the stream; blocking.

    Args:
        live: The live views, which may hold entries that the stream lost.
        fresh: Views with the identities that the stream holds.
        missing: Sequences that were not delivered when the stream was read.
        explains: The erasures and accepted losses that explain missing sequences.
    """
    identities = fresh.columns(f"SELECT k0, k1 FROM {ADMISSION_TABLE}")
    rows = [
        (seq, workspace, entry_id)
        for seq, workspace, entry_id in lost_entries(live, identities, "seq, workspace_id, id", explains)
    ]
    return Lack(
        without(normalised(missing), explains.ranges), [row[0] for row in rows], [(row[1], row[2]) for row in rows]
    )


def lost_entries(store: ViewStore, identities: Any, columns: str, explains: Explained) -> list[tuple[Any, ...]]:
    """The entries, except erased ones, that are in the views and not in the stream, in stream order; blocking.

    Args:
        store: The views.
        identities: ``k0, k1`` of the identities that the stream holds, as a ``pyarrow.Table``.
        columns: The columns to return; begins with ``seq, workspace_id, id``.
        explains: The erasures.
    """
    if ENTRIES.name not in store.tables():
        return []
    with store.snapshot() as con:
        con.register("held_by_stream", identities)  # visible only to this cursor, which is closed after the block
        rows = con.execute(
            f"SELECT {columns} FROM {ENTRIES} SEMI JOIN "
            f"(SELECT seq FROM {ADMISSION_TABLE} ANTI JOIN held_by_stream USING (k0, k1)) AS lost USING (seq) ORDER BY seq"
        ).fetchall()
    return without_erased(rows, explains)


def without_erased(rows: Iterable[tuple[Any, ...]], explains: Explained) -> list[tuple[Any, ...]]:
    """The rows without those of erased entries; rows begin with ``seq, workspace_id, id`` and are ordered by ``seq``."""
    erased = _Member(explains.erased)
    return [row for row in rows if row[0] not in erased and (row[1], row[2]) not in explains.erased_ids]


class _Member:
    """Tests ascending numbers for membership in ascending ranges."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._at = 0

    def __contains__(self, seq: int) -> bool:
        while self._at < len(self._ranges) and self._ranges[self._at][1] < seq:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= seq


class RebuildRefused(JournalDamaged):
    """The views are not replaced, because the stream holds less than they do."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(
            f"the journal has lost something: {lack_text(lack)}; all views are as they were", hint=self.HINT
        )
        self.lack = lack


def lack_text(lack: Lack) -> str:
    """The missing data in words."""
    parts = []
    if lack.sequences:
        parts.append(f"{sequences_text(lack.sequences)} missing from the stream without an explanation")
    parts.append(f"{len(lack.known):,} entries of the views are not in it")
    return ", ".join(parts)
