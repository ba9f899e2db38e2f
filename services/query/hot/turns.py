"""What the view of turns says of each document, as columns of the hot index.

Invariant: loaded at once or extended commit by commit, the columns are the same; a document that is no turn has flags 0
and no pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....schemas.ids import hash64
from ....schemas.ports import ViewReader
from ....schemas.views import TURNS
from .documents import ABSENT, places_of
from .growable import GrowableArray
from .ragged import Ragged

Ints = npt.NDArray[np.int64]

_TURNS: Final = f"""SELECT doc::BIGINT AS doc, flags, pieces, first_passage, days FROM {TURNS}
    WHERE ws = ? AND doc <= ? ORDER BY doc"""


@dataclass(frozen=True, slots=True)
class TurnRows:
    """Turns to append, m of them in ascending order of ``seq``.

    Attributes:
        seq: (m,) int64 stream sequences.
        flags: (m,) uint8, flags of ``rules.turns``.
        pieces: uint16 word pieces, one turn's after the other's.
        piece_counts: (m,) int64.
        first_passage: (m,) uint16: how many of a turn's pieces belong to its first passage.
        days: (d, 2) int32 first and last day of each interval named.
        day_counts: (m,) int64.
    """

    seq: Ints
    flags: npt.NDArray[np.uint8]
    pieces: npt.NDArray[np.uint16]
    piece_counts: Ints
    first_passage: npt.NDArray[np.uint16]
    days: npt.NDArray[np.int32]
    day_counts: Ints

    def only(self, kept: npt.NDArray[np.bool_]) -> TurnRows:
        """Some of the turns."""
        if kept.all():
            return self
        return TurnRows(
            self.seq[kept],
            self.flags[kept],
            self.pieces[np.repeat(kept, self.piece_counts)],
            self.piece_counts[kept],
            self.first_passage[kept],
            self.days[np.repeat(kept, self.day_counts)],
            self.day_counts[kept],
        )


def turns_of_commit(columns: Mapping[str, Any], workspace_id: str) -> TurnRows:
    """A workspace's turns out of what one commit says of all (``CommittedBatch.turns``)."""
    rows = TurnRows(
        columns["doc"].astype(np.int64),
        columns["flags"],
        columns["pieces"],
        np.diff(columns["piece_ends"], prepend=0),
        columns["first_passage"],
        columns["days"],
        np.diff(columns["day_ends"], prepend=0),
    )
    return rows.only(columns["ws"] == np.uint64(hash64(workspace_id)))


def read_turns(views: ViewReader, workspace_id: str, seq: int) -> TurnRows:
    """A workspace's turns up to a sequence; blocking, for a worker thread."""
    table = views.columns(_TURNS, [hash64(workspace_id), seq])
    pieces, piece_counts = _values(table, "pieces", np.dtype("<u2"))
    days, day_counts = _values(table, "days", np.dtype("<i4"))
    return TurnRows(
        _array(table, "doc"),
        _array(table, "flags"),
        pieces,
        piece_counts,
        _array(table, "first_passage"),
        days.reshape(-1, 2),
        day_counts // 2,
    )


class HotTurns:
    """The turns among the documents of one workspace."""

    def __init__(self) -> None:
        self._flags = GrowableArray(np.uint8)
        self._first_passage = GrowableArray(np.uint16)
        self.pieces = Ragged(np.uint16)
        self.days = Ragged(np.int32, 2)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._flags.nbytes + self._first_passage.nbytes + self.pieces.nbytes + self.days.nbytes

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8 flags of ``rules.turns``; 0 for what is no turn."""
        return self._flags.rows

    @property
    def first_passage(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16: how many of a turn's word pieces belong to its first passage."""
        return self._first_passage.rows

    def append(self, seqs: Ints, rows: TurnRows | None) -> None:
        """Append documents, and what is said of the turns among them.

        Args:
            seqs: (m,) int64 ascending sequences of the new documents.
            rows: Turns; those of other documents are passed over.
        """
        base = len(self._flags)
        flags, first = np.zeros(len(seqs), np.uint8), np.zeros(len(seqs), np.uint16)
        if rows is not None and len(rows.seq):
            place = places_of(seqs, rows.seq)
            rows, place = rows.only(place != ABSENT), place[place != ABSENT]
            flags[place], first[place] = rows.flags, rows.first_passage
            self.pieces.append(place + base, rows.pieces, rows.piece_counts)
            self.days.append(place + base, rows.days, rows.day_counts)
        self._flags.append(flags)
        self._first_passage.append(first)


def _array(table: pa.Table, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = table.column(name).to_numpy(zero_copy_only=False)
    return values


def _values(table: pa.Table, name: str, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """The values of a column of blobs, and how many each blob holds."""
    blob = table.column(name).combine_chunks()
    blob = (blob.chunk(0) if isinstance(blob, pa.ChunkedArray) else blob).cast(pa.large_binary())
    if not len(blob):
        return np.empty(0, dtype), np.empty(0, np.int64)
    ends = np.frombuffer(blob.buffers()[1], np.int64)[blob.offset : blob.offset + len(blob) + 1]
    data = blob.buffers()[2]
    values = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    return values.view(dtype), np.diff(ends) // dtype.itemsize
