"""The ``similar`` edges of one workspace, by document: what recall walks along without asking the database.

Invariant: after the same events the edges are those of ``memory_relations`` whose two entries have a document, whether they
were loaded at once or applied one by one: who outweighs whom is ``rules/relations``, and an event that an edge knows already
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.rules.relations import Authority, RelationState, outweighs
from .growable import GrowableArray

_STATES: Final = tuple(RelationState)
_CODES: Final = {state: code for code, state in enumerate(_STATES)}
_RETRACTED: Final = _CODES[RelationState.RETRACTED]

Docs = npt.NDArray[np.int32]


class SimilarEdges:
    """Undirected edges between documents, retracted ones included (they do not count, and stay retracted)."""

    def __init__(self) -> None:
        self._ends = GrowableArray(np.int32, 2)
        self._weight = GrowableArray(np.float64)
        self._state = GrowableArray(np.uint8)
        self._authority = GrowableArray(np.uint8)
        self._seq = GrowableArray(np.int64)
        self._sorted_docs: Docs = np.zeros(0, np.int32)
        self._sorted_rows: Docs = np.zeros(0, np.int32)
        self._later: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; the few edges that came since the load have a dictionary beside them."""
        columns = self._ends.nbytes + self._weight.nbytes + self._state.nbytes + self._seq.nbytes
        columns += self._authority.nbytes
        return columns + self._sorted_docs.nbytes + self._sorted_rows.nbytes

    def load(
        self,
        ends: Docs,
        weight: npt.NDArray[np.float64],
        states: npt.NDArray[np.uint8],
        authority: npt.NDArray[np.uint8],
        seq: npt.NDArray[np.int64],
    ) -> None:
        """Fill empty edges.

        Args:
            ends: (m, 2) int32 documents.
            weight: (m,) float64.
            states: (m,) uint8, ``state_code`` of each.
            authority: (m,) uint8, ``Authority`` of each.
            seq: (m,) int64 sequence of the event that made the edge what it is.
        """
        self._ends.append(ends)
        self._weight.append(weight)
        self._state.append(states)
        self._authority.append(authority)
        self._seq.append(seq)
        both = ends.T.reshape(-1)
        order = np.argsort(both, kind="stable")
        self._sorted_docs = both[order]
        self._sorted_rows = (order % max(1, len(ends))).astype(np.int32)

    def apply(self, one: int, other: int, weight: float, state: RelationState, authority: Authority, seq: int) -> None:
        """What the event at ``seq`` says of the edge between two documents."""
        row = next((row for row in self._rows_of(one) if other in self._ends.rows[row]), None)
        if row is None:
            row = len(self)
            self._ends.append([[one, other]])
            self._weight.append([weight])
            self._state.append([_CODES[state]])
            self._authority.append([authority])
            self._seq.append([seq])
            for doc in (one, other):
                self._later.setdefault(doc, []).append(row)
            return
        if seq <= self._seq.rows[row] or not outweighs(authority, Authority(int(self._authority.rows[row]))):
            return
        if state is not RelationState.RETRACTED:
            self._weight.rows[row] = weight
        self._state.rows[row] = _CODES[state]
        self._authority.rows[row] = authority
        self._seq.rows[row] = seq

    def neighbours(self, doc: int) -> Iterator[tuple[int, float]]:
        """Each document that an edge joins with ``doc``, and the edge's weight; retracted edges do not count."""
        for row in self._rows_of(doc):
            if self._state.rows[row] != _RETRACTED:
                first, second = self._ends.rows[row].tolist()
                yield (second if first == doc else first), float(self._weight.rows[row])

    def _rows_of(self, doc: int) -> list[int]:
        begin, end = np.searchsorted(self._sorted_docs, [doc, doc + 1]).tolist()
        loaded: list[int] = self._sorted_rows[begin:end].tolist()
        return loaded + self._later.get(doc, [])


def state_code(state: str) -> int:
    """The number that stands for a state in the columns."""
    return _CODES[RelationState(state)]
