"""Finds the nearest earlier entries of an entry in the hot index, for the link reactor (contract §7).

Invariant: only vectors whose facts precede the entry's are compared, so the answer does not depend on the time of the
request. Only vectors of the same workspace, crew (or both without one), active model and dimension are compared.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.derived import FLOAT_BYTES
from ...schemas.core.ports import NearQuery, NearText, ViewReader
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
class Sought:
    """A vector and the columns to compare it with; later appends do not change these arrays.

    Attributes:
        source: The document whose vector it is.
        before: Only facts below this sequence count.
        doc: (n,) int32 document of each row of the matrix.
        fact_seq: (n,) int64 sequence of each row's fact.
        crew: (m,) int32 crew of each document.
        vectors: (n, d) float32.
        vector: Little-endian float32, any norm.
        threshold: Lowest cosine.
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

    def compared(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The rows that reach the threshold, ascending, and their cosines; may run in a thread."""
        doc, query = self.doc, query_vector(self.vector)
        rows = np.flatnonzero((doc != NO_ROW) & (doc != self.source) & (self.fact_seq < self.before))
        rows = rows[self.crew[doc[rows]] == self.crew[self.source]]
        if len(rows) * NARROW_SHARE < len(doc):
            cosines = np.vecdot(self.vectors[rows], query)
        else:
            cosines = np.vecdot(self.vectors, query)[rows]
        near = np.flatnonzero(cosines >= self.threshold - ROUNDING)
        return rows[near], cosines[near]

    def nearest(self, near: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]], k: int) -> list[NearText]:
        """The best ``k`` (cosine, then newer ts, then id), without vectors that were replaced or removed meanwhile."""
        rows, cosines = near
        docs = self.matrix.doc[rows]
        kept = np.flatnonzero((docs != NO_ROW) & (self.matrix.fact_seq[rows] < self.before))
        docs, scores = docs[kept], np.clip(cosines[kept].astype(np.float64), self.threshold, 1.0)
        return [
            NearText(self.documents.id_of(int(docs[at])), float(scores[at]), int(self.documents.seq[docs[at]]))
            for at in ranked(self.documents, docs, scores, k).tolist()
        ]


def sought(index: HotIndex, query: NearQuery, vector: bytes) -> Sought | None:
    """The input of the comparison (see ``NearQuery``); None if there is nothing to compare."""
    matrix, documents = index.vectors, index.documents
    if matrix is None or matrix.model != query.model or matrix.dim != len(vector) // FLOAT_BYTES:
        return None
    source = int(documents.local(np.array([query.entry_seq], np.int64))[0])
    if source == ABSENT:
        return None
    return Sought(
        documents,
        matrix,
        source,
        query.before,
        matrix.doc,
        matrix.fact_seq,
        documents.crew,
        matrix.vectors,
        vector,
        query.least if 0.0 < query.least <= 1.0 else SIMILAR_THRESHOLD,
    )


class NearEntries:
    """Finds entries for ``Finder``.

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

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """See ``Finder.nearest``; none for a model that is not active."""
        await self._views.wait_for(query.before, self._wait_s, *INDEXED_PROJECTIONS, VECTORS_PROJECTION, patient=True)
        if self._cache.active_model(query.workspace_id) != query.model:
            return [[] for _ in query.vectors]
        asked = _Asked(query)
        self._asked.append(asked)
        try:
            async with self._turn:
                if asked.found is None:
                    await self._answer(
                        [other for other in self._asked if other.found is None and other.same_vectors(query)]
                    )
        finally:
            self._asked.remove(asked)
        assert asked.found is not None
        return asked.found

    async def _answer(self, waiting: list[_Asked]) -> None:
        """Answer all waiting requests for one model's vectors; an error is raised to its own request only."""
        query = max((asked.query for asked in waiting), key=lambda query: query.before)
        await self._cache.get(query.workspace_id, query.before)
        index, matrix = await self._cache.with_matrix(query.workspace_id, query.model)
        over = index.over(matrix)
        compared = [(asked, [sought(over, asked.query, vector) for vector in asked.query.vectors]) for asked in waiting]
        wanted = [one for _, several in compared for one in several if one is not None]
        near = iter(await asyncio.to_thread(lambda: [one.compared() for one in wanted]) if wanted else ())
        for asked, several in compared:
            k = asked.query.k
            asked.found = [one.nearest(next(near), k) if one is not None else [] for one in several]


@dataclass(slots=True, eq=False)
class _Asked:
    """A request and its future answer."""

    query: NearQuery
    found: list[list[NearText]] | None = None

    def same_vectors(self, query: NearQuery) -> bool:
        return (self.query.workspace_id, self.query.model) == (query.workspace_id, query.model)
