"""What is missing from JOURNAL, what explains it, and what the views still know of it.

Invariant: a sequence is explained only by an ``erasure.scoped`` or a ``journal.loss_accepted`` that lies behind it.
Everything else that a read does not give is damage. nats-server skips a message whose checksum fails without a word and
goes on counting it (measured with 2.15.1), so every read counts what it was given.
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
"""Erasures and accepted losses, of the rows that a condition names."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why sequences may be missing.

    Attributes:
        ranges: Sequences that were erased or whose loss was accepted.
        erased: Those that were erased.
        erased_ids: (workspace, entry id) of erased entries.
    """

    ranges: list[Range]
    erased: list[Range]
    erased_ids: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lack:
    """What the stream lacks.

    Attributes:
        sequences: Missing from it and not explained.
        known: Sequences of entries that the views know and the stream does not hold.
        ids: Their (workspace, id), in the same order.
    """

    sequences: list[Range]
    known: list[int]
    ids: list[tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.sequences or self.known)


def explained(store: ViewStore) -> Explained:
    """What the views know of erasures and accepted losses; blocking."""
    if ENTRIES.name not in store.tables():
        return Explained([], [], frozenset())
    return explained_by(store.rows(EXPLAINING.format(rows="TRUE"), list(EXPLANATIONS)))


def explained_by(rows: Iterable[tuple[int, str, str, str]]) -> Explained:
    """What rows of ``EXPLAINING`` explain."""
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
    """Which sequences a read of the stream did not give."""

    def __init__(self) -> None:
        self._missing: list[Range] = []

    @property
    def missing(self) -> list[Range]:
        """What was not given, as ranges."""
        self._missing = normalised(self._missing)
        return self._missing

    def account(self, expected: int, messages: Sequence[RawMessage]) -> int:
        """Note what lies between ``expected`` and the messages, which ascend; returns the next one expected."""
        if messages and messages[-1].seq - expected + 1 == len(messages):
            return messages[-1].seq + 1
        for message in messages:
            if message.seq > expected:
                self._missing.append((expected, message.seq - 1))
            expected = max(expected, message.seq + 1)
        return expected

    def end(self, expected: int, last_seq: int) -> None:
        """Note that a read has ended before ``last_seq``."""
        if expected <= last_seq:
            self._missing.append((expected, last_seq))

    def add(self, ranges: Sequence[Range]) -> None:
        """Note what another read did not give."""
        self._missing += ranges

    def counted(self, source: ReplaySource) -> ReplaySource:
        """The same source; what it does not give up to the last sequence asked for is noted."""

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
    """Read the stream to ``last_seq`` and fold nothing; returns what it does not give."""
    account = ReadAccount()
    async for _ in account.counted(source)(1, last_seq):
        pass
    return account.missing


def lack_of(live: ViewStore, fresh: ViewStore, missing: Sequence[Range], explains: Explained) -> Lack:
    """The entries and sequences that the stream lacks, found by folding it; blocking.

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
    """The entries that the views know and the stream does not hold, but for erased ones, in stream order; blocking.

    Args:
        store: The views.
        identities: ``k0, k1`` of the identities that the stream holds, as a ``pyarrow.Table``.
        columns: What of each entry; begins with ``seq, workspace_id, id``.
        explains: Says what was erased.
    """
    if ENTRIES.name not in store.tables():
        return []
    with store.snapshot() as con:
        con.register("held_by_stream", identities)  # of this cursor alone, which ends with the block
        rows = con.execute(
            f"SELECT {columns} FROM {ENTRIES} SEMI JOIN "
            f"(SELECT seq FROM {ADMISSION_TABLE} ANTI JOIN held_by_stream USING (k0, k1)) AS lost USING (seq) ORDER BY seq"
        ).fetchall()
    return without_erased(rows, explains)


def without_erased(rows: Iterable[tuple[Any, ...]], explains: Explained) -> list[tuple[Any, ...]]:
    """Rows that begin with ``seq, workspace_id, id``, in order of ``seq``, but for those of erased entries."""
    erased = _Member(explains.erased)
    return [row for row in rows if row[0] not in erased and (row[1], row[2]) not in explains.erased_ids]


class _Member:
    """Whether ascending questions lie in ascending ranges."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._at = 0

    def __contains__(self, seq: int) -> bool:
        while self._at < len(self._ranges) and self._ranges[self._at][1] < seq:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= seq


class RebuildRefused(JournalDamaged):
    """Views are not replaced by what the stream holds, because that is less."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(
            f"the journal has lost something: {lack_text(lack)}; all views are as they were", hint=self.HINT
        )
        self.lack = lack


def lack_text(lack: Lack) -> str:
    """What is lacking, in words."""
    parts = []
    if lack.sequences:
        parts.append(f"{sequences_text(lack.sequences)} missing from the stream without an explanation")
    parts.append(f"{len(lack.known):,} entries of the views are not in it")
    return ", ".join(parts)
