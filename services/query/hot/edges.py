"""The ``similar`` edges of one workspace, by document, so that recall walks them without a query.

Invariant: the edges are those rows of ``memory_relations`` whose two entries have a document, whether they were loaded at
once or commit by commit; a row that is older than the known one of its edge changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ....schemas.rules.relations import SIMILAR, RelationState
from ....schemas.views import RELATIONS
from .arrow import array, dictionary, present, sequences
from .growable import GrowableArray
from .rows import Rows
from .vocabulary import ABSENT, places_of

Docs = npt.NDArray[np.int32]


class SimilarEdges:
    """Undirected edges between documents, retracted ones included (they do not count, and stay retracted)."""

    def __init__(self) -> None:
        self._ends = GrowableArray(np.int32, 2)
        self._weight = GrowableArray(np.float64)
        self._counts = GrowableArray(np.bool_)
        self._seq = GrowableArray(np.int64)
        self._sorted_docs: Docs = np.zeros(0, np.int32)
        self._sorted_rows: Docs = np.zeros(0, np.int32)
        self._later: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; the few edges that came since the load have a dictionary beside them."""
        columns = self._ends.nbytes + self._weight.nbytes + self._counts.nbytes + self._seq.nbytes
        return columns + self._sorted_docs.nbytes + self._sorted_rows.nbytes

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
        """Take in edges between documents, whose ascending sequences are ``seqs``; others come with their entries."""
        table = rows.of(RELATIONS, "src_seq", "dst_seq", "weight", "state", "seq", relation=SIMILAR)
        if table is None:
            return
        table = present(table, "dst_seq")  # the event may not name it
        ends = np.stack([places_of(seqs, sequences(table, name)) for name in ("src_seq", "dst_seq")], axis=1)
        known = (ends != ABSENT).all(axis=1)
        states, state = dictionary(table.column("state"))
        counts = np.array([name != RelationState.RETRACTED for name in states], bool)[state]
        self.put(ends[known], array(table, "weight")[known], counts[known], sequences(table, "seq")[known])

    def put(
        self,
        ends: Docs,
        weight: npt.NDArray[np.float64],
        counts: npt.NDArray[np.bool_],
        seq: npt.NDArray[np.int64],
    ) -> None:
        """Set edges.

        Args:
            ends: (m, 2) int32 documents.
            weight: (m,) float64.
            counts: (m,) bool: whether the edge is not retracted.
            seq: (m,) int64 sequence of the event that made the edge what it is.
        """
        if not len(self):
            self._append(ends, weight, counts, seq)
            both = ends.T.reshape(-1)
            order = np.argsort(both, kind="stable")
            self._sorted_docs = both[order]
            self._sorted_rows = (order % max(1, len(ends))).astype(np.int32)
            return
        for at, (src, dst) in enumerate(ends.tolist()):
            row = next((row for row in self._rows_of(src) if dst in self._ends.rows[row]), None)
            if row is None:
                for doc in (src, dst):
                    self._later.setdefault(doc, []).append(len(self))
                part = slice(at, at + 1)
                self._append(ends[part], weight[part], counts[part], seq[part])
            elif seq[at] > self._seq.rows[row]:
                self._weight.rows[row], self._counts.rows[row], self._seq.rows[row] = weight[at], counts[at], seq[at]

    def _append(
        self,
        ends: Docs,
        weight: npt.NDArray[np.float64],
        counts: npt.NDArray[np.bool_],
        seq: npt.NDArray[np.int64],
    ) -> None:
        self._ends.append(ends)
        self._weight.append(weight)
        self._counts.append(counts)
        self._seq.append(seq)

    def neighbours(self, doc: int) -> Iterator[tuple[int, float]]:
        """Each document that an edge joins with ``doc``, and the edge's weight; retracted edges do not count."""
        for row in self._rows_of(doc):
            if self._counts.rows[row]:
                first, second = self._ends.rows[row].tolist()
                yield (second if first == doc else first), float(self._weight.rows[row])

    def _rows_of(self, doc: int) -> list[int]:
        begin, end = np.searchsorted(self._sorted_docs, [doc, doc + 1]).tolist()
        loaded: list[int] = self._sorted_rows[begin:end].tolist()
        return loaded + self._later.get(doc, [])
