"""The dense arm: cosine times importance over the vectors of the workspace's active model (contract §4, seed 1).

Every vector in scope is compared; the seed's cap at the newest 5,000 is not needed for a matrix in memory.

Invariant: a cosine does not depend on the position of its vector in the matrix. ``numpy.vecdot`` computes each row in
the same order. A matrix-vector product of BLAS does not, and its threads compete with the service for cores (10,000
vectors of 384 dimensions: 0.9 ms; BLAS 0.8 ms on one thread, 5 ms on two busy cores).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..hot.columns import HotColumn
from ..hot.index import HotIndex
from ..hot.lists import Docs
from ..hot.scoped import ScopedDocuments
from ..hot.vector_matrix import NO_ROW, VectorMatrix, Vectors
from .lane import EMPTY_LANE, Lane, ranked

Scores = npt.NDArray[np.float32]

HUBS: Final = 0.7
"""Share of a text's mean cosine with all sorts of queries that is taken off its cosine: some texts are near to everything
(Radovanović et al., 2010, "Hubs in space"). Paraphrased questions about notes among the first five: multilingual-e5-small
.594 → .698, MiniLM .740 → .760; conversations ± .003."""
NARROW_SHARE: Final = 8
"""If fewer than one in this many vectors is in scope, they are copied first; copying costs a few times the product."""


@dataclass(frozen=True, slots=True)
class DenseScores:
    """Cosine and importance of m documents.

    Attributes:
        cosine: (m,) float32; NaN where a document has no vector.
        importance: (m,) float32; NaN likewise.
        hubness: (m,) float32 what is taken off each cosine for ranking; None for nothing.
    """

    cosine: Scores
    importance: Scores
    hubness: Scores | None = None

    @property
    def weighted(self) -> Scores:
        """Cosine, less hubness, times importance."""
        near = self.cosine if self.hubness is None else self.cosine - self.hubness
        return near * self.importance


@dataclass(frozen=True, slots=True)
class DenseResult:
    """The lane of the dense arm, and what is needed to score any other document.

    Attributes:
        lane: The best documents.
        matrix: The vectors; None if there are none.
        importances: The importance of every document.
        query: The query's vector.
        usual: (d,) float32 mean vector of all sorts of queries, for the hubness; None for none.
        cosines: (rows,) float32 cosine of every row of the matrix; None if only rows in scope were computed.
        in_scope: (s,) float32 cosine of the rows in scope; None if there are none.
    """

    lane: Lane
    matrix: VectorMatrix | None
    importances: HotColumn
    query: Vectors
    usual: Vectors | None = None
    cosines: Scores | None = None
    in_scope: Scores | None = None

    def scores_of(self, docs: Docs) -> DenseScores:
        """Cosine and importance of any documents."""
        cosine = np.full(len(docs), np.nan, np.float32)
        importance = np.full(len(docs), np.nan, np.float32)
        hubness = None
        if self.matrix is not None:
            rows = self.matrix.rows_of(docs)
            have = (rows != NO_ROW).nonzero()[0]
            rows = rows[have]
            cosine[have] = self.cosines[rows] if self.cosines is not None else _cosines(self.matrix, rows, self.query)
            importance[have] = self.importances.of(docs[have])
            if self.usual is not None and len(self.usual) == self.matrix.dim:
                hubness = np.zeros(len(docs), np.float32)
                hubness[have] = HUBS * _cosines(self.matrix, rows, self.usual)
        return DenseScores(cosine, importance, hubness)


def _cosines(matrix: VectorMatrix, rows: npt.NDArray[np.integer] | None, query: Vectors) -> Scores:
    """(m,) float32 cosines of these rows, or of all if None; 0 if the dimensions differ."""
    if matrix.dim != len(query):
        return np.zeros(len(matrix) if rows is None else len(rows), np.float32)
    vectors = matrix.vectors if rows is None else matrix.vectors[rows]
    cosines: Scores = np.vecdot(vectors, query)
    return cosines


def search_dense(
    index: HotIndex, scoped: ScopedDocuments, query: Vectors, depth: int, usual: Vectors | None = None
) -> DenseResult:
    """Rank the documents in scope by ``query``, (d,) float32, L2-normalised, of the index's model."""
    matrix = index.vectors
    if matrix is None or not len(matrix):
        return DenseResult(EMPTY_LANE, None, index.importances, query)
    doc = matrix.doc
    live = doc != NO_ROW
    if scoped.mask is not None:
        live &= scoped.mask[doc]  # -1 selects the last row, which ``live`` leaves out
    every = None
    if live.all():
        docs, cosines = doc, (every := _cosines(matrix, None, query))
    else:
        rows = live.nonzero()[0]
        if not len(rows):
            return DenseResult(EMPTY_LANE, matrix, index.importances, query)
        docs = doc[rows]
        if len(rows) * NARROW_SHARE < len(doc):
            cosines = _cosines(matrix, rows, query)
        else:
            cosines = (every := _cosines(matrix, None, query))[rows]
    scores = cosines * index.importances.of(docs)
    best = ranked(index.documents, docs, scores, depth)
    lane = Lane(docs[best].astype(np.intp), scores[best])
    return DenseResult(lane, matrix, index.importances, query, usual, every, cosines)
