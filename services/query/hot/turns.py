"""The view of turns as columns of the hot index, one value a document.

Invariant: loaded at once or extended commit by commit, the columns are the same; a document that is not a turn has flags 0
and no pieces.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....schemas.views import TURNS
from .arrow import kept, runs, sequences
from .columns import HotColumn
from .ragged import Ragged
from .rows import Rows
from .vocabulary import ABSENT, places_of


class HotTurns:
    """The turns among the documents of one workspace.

    Args:
        flags: uint8 flags of ``rules.turns`` by document.
        first_passage: uint16: how many of a turn's word pieces belong to its first passage.
    """

    def __init__(self, flags: HotColumn, first_passage: HotColumn) -> None:
        self._flags = flags
        self._first_passage = first_passage
        self.pieces = Ragged(np.uint16)
        self.days = Ragged(np.int32, 2)

    @property
    def nbytes(self) -> int:
        """Bytes allocated beside the two columns."""
        return self.pieces.nbytes + self.days.nbytes

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8 flags of ``rules.turns``; 0 for a document that is not a turn."""
        return self._flags.rows

    @property
    def first_passage(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16: how many of a turn's word pieces belong to its first passage."""
        return self._first_passage.rows

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
        """Take in word pieces and days of documents, whose ascending sequences are ``seqs``."""
        table = rows.of(TURNS, "doc", "pieces", "days", order="doc")
        if table is None:
            return
        docs = places_of(seqs, sequences(table, "doc"))
        here = docs != ABSENT
        docs, table = docs[here], kept(table, here)
        pieces, piece_counts = runs(table, "pieces", "<u2")
        days, day_counts = runs(table, "days", "<i4")
        self.pieces.append(docs, pieces, piece_counts)
        self.days.append(docs, days.reshape(-1, 2), day_counts // 2)
