"""Finds the nearest earlier entries of an entry in the hot index, for the link reactor (contract §7).

Invariant: only vectors whose facts precede the entry's are compared, so the answer does not depend on the time of the
request. Only vectors of the same workspace, crew (or both without one), active model and dimension are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.envelope import VectorDerived
from ...schemas.core.ports import SimilarEntry, ViewReader
from ...schemas.models.tables import VECTORS_PROJECTION
from ...schemas.settings import MIN_SEQ_WAIT_S, SIMILAR_THRESHOLD
from ..index.arrays import ABSENT
from ..index.documents import EntryColumns
from ..index.entry_index import HotIndex
from ..index.entry_slot import EntryIndexes
from ..index.take import INDEXED_PROJECTIONS
from ..index.vectors import NO_ROW, VectorMatrix, Vectors, query_vector
from .arms import NARROW_SHARE, ranked

ROUNDING: Final = 1e-6
"""Rounding tolerance: a cosine of exactly the threshold may be computed as slightly less."""


@dataclass(frozen=True, slots=True)
class Near:
    """Rows of the matrix that reach the threshold, ascending, and their cosines: (m,) int64 and (m,) float32."""

    rows: npt.NDArray[np.int64]
    cosines: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sought:
    """A fact's vector and the columns to compare it with; later appends do not change these arrays.

    Attributes:
        source: The document whose vector it is.
        before: Only facts below this sequence count.
        doc: (n,) int32 document of each row of the matrix.
        fact_seq: (n,) int64 sequence of each row's fact.
        vectors: (n, d) float32.
        vector: Vector of the fact: d little-endian float32, any norm.
    """

    documents: EntryColumns
    matrix: VectorMatrix
    source: int
    before: int
    doc: npt.NDArray[np.int32]
    fact_seq: npt.NDArray[np.int64]
    crew: npt.NDArray[np.int32]
    vectors: Vectors
    vector: bytes
    threshold: float

    def compared(self) -> Near:
        """The rows that reach the threshold; may run in a thread."""
        doc, query = self.doc, query_vector(self.vector)
        rows = np.flatnonzero((doc != NO_ROW) & (doc != self.source) & (self.fact_seq < self.before))
        rows = rows[self.crew[doc[rows]] == self.crew[self.source]]
        if len(rows) * NARROW_SHARE < len(doc):
            cosines = np.vecdot(self.vectors[rows], query)
        else:
            cosines = np.vecdot(self.vectors, query)[rows]
        near = np.flatnonzero(cosines >= self.threshold - ROUNDING)
        return Near(rows[near], cosines[near])

    def nearest(self, near: Near, k: int) -> list[SimilarEntry]:
        """The best ``k`` (cosine, then newer ts, then id), without vectors that were replaced or removed meanwhile."""
        docs = self.matrix.doc[near.rows]
        kept = np.flatnonzero((docs != NO_ROW) & (self.matrix.fact_seq[near.rows] < self.before))
        docs, scores = docs[kept], np.clip(near.cosines[kept].astype(np.float64), self.threshold, 1.0)
        return [
            SimilarEntry(self.documents.id_of(int(docs[at])), int(self.documents.seq[docs[at]]), float(scores[at]))
            for at in ranked(self.documents, docs, scores, k).tolist()
        ]


def sought(index: HotIndex, fact: VectorDerived, threshold: float) -> Sought | None:
    """The input of the comparison (see ``SimilarReader``); None if there is nothing to compare."""
    matrix, documents = index.vectors, index.documents
    if matrix is None or matrix.model != fact.model or matrix.dim != fact.dim:
        return None
    source = int(documents.local(np.array([fact.entry_seq], np.int64))[0])
    if source == ABSENT:
        return None
    return Sought(
        documents,
        matrix,
        source,
        fact.seq,
        matrix.doc,
        matrix.fact_seq,
        documents.crew,
        matrix.vectors,
        fact.vector,
        threshold if 0.0 < threshold <= 1.0 else SIMILAR_THRESHOLD,
    )


class SimilarEntries:
    """Implements ``SimilarReader`` over the hot indexes.

    Comparisons run in a thread, because each takes 0.9 ms at 10,000 vectors of 384 dimensions and would delay recalls
    (p50 over HTTP 15 ms instead of 6). Requests that arrive meanwhile for the same vectors are answered together, since
    switching threads costs as much as a comparison.
    """

    def __init__(self, views: ViewReader, cache: EntryIndexes, *, wait_s: float = MIN_SEQ_WAIT_S) -> None:
        self._views = views
        self._cache = cache
        self._wait_s = wait_s
        self._turn = asyncio.Lock()
        self._asked: list[_Asked] = []

    async def similar(self, fact: VectorDerived, k: int, threshold: float) -> list[SimilarEntry]:
        """The best ``k`` earlier entries with a cosine of at least ``threshold``; none for a model that is not active.

        Raises:
            ViewsBehind: If the views do not reach the fact in time.
        """
        await self._views.wait_for(fact.seq, self._wait_s, *INDEXED_PROJECTIONS, VECTORS_PROJECTION)
        if self._cache.active_model(fact.workspace_id) != fact.model:
            return []
        query = _Asked(fact, k, threshold)
        self._asked.append(query)
        try:
            async with self._turn:
                if query.found is None:
                    await self._answer(
                        [query for query in self._asked if query.found is None and _same_vectors(query.fact, fact)]
                    )
        finally:
            self._asked.remove(query)
        assert query.found is not None
        return query.found

    async def _answer(self, queries: list[_Asked]) -> None:
        """Answer all waiting requests for one model's vectors; an error is raised to its own request only."""
        fact = max((query.fact for query in queries), key=lambda fact: fact.seq)
        await self._cache.get(fact.workspace_id, fact.seq)
        index, matrix = await self._cache.with_matrix(fact.workspace_id, fact.model)
        over = index.over(matrix)
        compared = [(query, sought(over, query.fact, query.threshold)) for query in queries]
        wanted = [compared_index for _, compared_index in compared if compared_index is not None]
        near = iter(await asyncio.to_thread(_compare, wanted) if wanted else ())
        for query, compared_index in compared:
            query.found = compared_index.nearest(next(near), query.k) if compared_index is not None else []


@dataclass(slots=True, eq=False)
class _Asked:
    """A request and its future answer."""

    fact: VectorDerived
    k: int
    threshold: float
    found: list[SimilarEntry] | None = None


def _same_vectors(vector_derived: VectorDerived, other: VectorDerived) -> bool:
    return vector_derived.workspace_id == other.workspace_id and vector_derived.model == other.model


def _compare(wanted: Iterable[Sought]) -> list[Near]:
    return [sought.compared() for sought in wanted]
