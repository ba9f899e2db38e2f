"""The columns of a table that a hot index holds, one value a document, as the table declares them (``tables``).

Invariant: a column that is declared hot is loaded and followed without further code: ``take`` gets the table's rows from the
views or from a commit, and a row of a document replaces the former one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...schemas.core.table import Hot, Table
from .arrays import ABSENT, GrowableArray, Vocabulary, places_of
from .arrow import Found, Written, array, dictionary, kept, sequences
from .rows import Rows


class HotColumn:
    """One column by document.

    Attributes:
        names: The texts that the values of a coded column stand for.
    """

    def __init__(self, hot: Hot) -> None:
        self.names = Vocabulary()
        self._hot = hot
        dtype = np.dtype(hot.dtype)
        self._most = np.iinfo(dtype).max if dtype.kind == "u" else None
        self._values = GrowableArray(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes allocated; the vocabulary is not counted."""
        return self._values.nbytes

    @property
    def rows(self) -> npt.NDArray[Any]:
        """(n,) the values by document."""
        return self._values.rows

    def of(self, docs: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """(m,) the values of some documents."""
        return self._values.rows.take(docs)

    def set(self, docs: npt.NDArray[np.intp], hit: Found, name: str) -> None:
        """Set the values of some documents to a column."""
        if len(docs) == 1 and isinstance(hit, Written):  # numpy takes four times as long for a single value
            value = hit.column(name)[0]
            if self._hot.coded:
                value = self.names.learn(value)
            self._values.rows[docs[0]] = value if self._most is None else min(value, self._most)
            return
        if not self._hot.coded:
            values = array(hit, name)
            if self._most is not None:
                values = np.minimum(values, self._most)
        elif isinstance(hit, Written):
            values = self.names.learn_all(hit.column(name))
        else:
            names, codes = dictionary(hit.column(name))
            values = self.names.learn_all([*names, None])[codes]  # -1 reads the last
        self._values.rows[docs] = values

    def cover(self, documents: int) -> None:
        """Make room for so many documents."""
        self._values.cover(documents, self._hot.missing)


class HotTable:
    """The hot columns of one table.

    Attributes:
        columns: By name.
        needed_seq: The table's view must have passed this for the columns to be right: where they were loaded, or the last
            commit that rewrote them or did without the view.
        read_seq: Where the view was when they were read.
    """

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        self.columns = {column.name: HotColumn(column.hot) for column in table.hot if column.hot is not None}
        self.needed_seq = 0
        self.read_seq = 0
        self._wanted = tuple(dict.fromkeys((table.document or "", *self.columns)))
        self._covered = 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def stale(self) -> bool:
        """Whether the columns are to be read again, once the view has come so far."""
        return self.read_seq < self.needed_seq

    def read(self, rows: Rows) -> Found | None:
        """The table's rows with the columns that ``put`` takes."""
        return rows.of(self.table, *self._wanted)

    def put(self, hit: Found | None, seqs: npt.NDArray[np.int64]) -> None:
        """Take over rows that were read; those of entries that are not documents are skipped.

        Args:
            hit: The rows; None if there are none.
            seqs: (n,) int64 stream sequences of the documents, ascending.
        """
        if len(seqs) > self._covered:
            self._covered = len(seqs)
            for column in self.columns.values():
                column.cover(len(seqs))
        if hit is None:
            return
        assert self.table.document is not None  # a table without it has no hot columns
        places = places_of(seqs, sequences(hit, self.table.document))
        here = places != ABSENT
        docs, hit = places[here].astype(np.intp), kept(hit, here)  # the type that numpy indexes with
        for name, column in self.columns.items():
            column.set(docs, hit, name)

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
        """``read`` and ``put``."""
        if rows.may_have(self.table) or len(seqs) > self._covered:
            self.put(self.read(rows), seqs)
