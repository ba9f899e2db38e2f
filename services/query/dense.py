"""The dense arm: cosine times importance over the vectors of the workspace's active model (contract §4, seed 1).

Every vector in scope is compared, exactly: the seed's cap at the newest 5,000 bounded a scan of database rows, and the
matrix in memory needs none.

Invariant: scores do not depend on where a vector lies in the matrix: the product with the whole matrix only chooses
candidates, whose cosines are then computed row by row in one fixed order of operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from crew_journal.services.query.hot_index import HotIndex
from crew_journal.services.query.lexical import EMPTY_LANE, Lane, ranked
from crew_journal.services.query.scoped import ScopedDocuments
from crew_journal.services.query.vector_matrix import NO_ROW, VectorMatrix, Vectors

Docs = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]

_MARGIN: Final = np.float32(1e-4)
"""How far the matrix product may be off a row's own cosine; float32 sums of 1,000 products differ by less than 1e-5."""
NARROW_SHARE: Final = 8
"""A scope with fewer than one in so many vectors is gathered first: copying costs about four times the product."""


@dataclass(frozen=True, slots=True)
class DenseScores:
    """Cosine and importance of some documents.

    Attributes:
        cosine: (m,) float32; NaN where a document has no vector.
        importance: (m,) float32; NaN likewise.
    """

    cosine: Scores
    importance: Scores

    @property
    def weighted(self) -> Scores:
        """Cosine times importance."""
        return self.cosine * self.importance


@dataclass(frozen=True, slots=True)
class DenseResult:
    """What the dense arm found: its lane by cosine times importance, and enough to score any other document."""

    lane: Lane
    matrix: VectorMatrix | None
    query: Vectors

    def scores_of(self, docs: Docs) -> DenseScores:
        """Cosine and importance of any documents."""
        cosine = np.full(len(docs), np.nan, np.float32)
        importance = np.full(len(docs), np.nan, np.float32)
        if self.matrix is not None:
            rows = self.matrix.rows_of(docs)
            have = rows != NO_ROW
            cosine[have] = _cosines(self.matrix, rows[have], self.query)
            importance[have] = self.matrix.importance[rows[have]]
        return DenseScores(cosine, importance)


def _cosines(matrix: VectorMatrix, rows: npt.NDArray[np.integer], query: Vectors) -> Scores:
    """(m,) float32 cosines, each summed alike wherever its row lies; 0 if the lengths differ."""
    if matrix.dim != len(query):
        return np.zeros(len(rows), np.float32)
    products = matrix.vectors[rows]
    products *= query
    cosines: Scores = products.sum(axis=1, dtype=np.float32)
    return cosines


def search_dense(index: HotIndex, scoped: ScopedDocuments, query: Vectors, depth: int) -> DenseResult:
    """The documents in scope nearest to a query.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        query: (d,) float32, L2-normalised, of the index's model.
        depth: Length of the lane.
    """
    matrix = index.vectors
    if matrix is None or not len(matrix):
        return DenseResult(EMPTY_LANE, None, query)
    doc = matrix.doc
    live = doc != NO_ROW
    if scoped.mask is not None:
        live &= scoped.mask[doc]  # -1 reads the last row; ``live`` already leaves it out
    rows = np.flatnonzero(live)
    if not len(rows):
        return DenseResult(EMPTY_LANE, matrix, query)
    narrow = len(rows) * NARROW_SHARE < len(doc)
    if matrix.dim != len(query):
        scores = np.zeros(len(rows), np.float32)
    elif narrow:
        scores = matrix.vectors[rows] @ query
    else:
        scores = (matrix.vectors @ query)[rows]
    scores *= matrix.importance[rows]
    if depth < len(rows):
        least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        rows = rows[scores >= least - _MARGIN]
    docs = doc[rows]
    exact = _cosines(matrix, rows, query) * matrix.importance[rows]
    best = ranked(index.documents, docs, exact, depth)
    return DenseResult(Lane(docs[best], exact[best]), matrix, query)
