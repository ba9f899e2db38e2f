"""The nearest earlier entries of an entry, over the hot index: what the link reactor asks (contract §7).

Invariant: only vectors count whose facts came before the one that asks, so the answer does not depend on when it is asked;
same workspace, same crew (none with none), the workspace's active model, the same length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.events.envelope import VectorDerived
from ....schemas.ports import SimilarEntry, ViewReader
from ....schemas.settings import MIN_SEQ_WAIT_S, SIMILAR_THRESHOLD
from ....schemas.views import VECTORS_PROJECTION
from ..hot.cache import HotCache
from ..hot.documents import ABSENT, Documents
from ..hot.index import HotIndex
from ..hot.load import INDEXED_PROJECTIONS
from ..hot.vector_matrix import NO_ROW, VectorMatrix, Vectors, query_vector
from .dense import NARROW_SHARE
from .lane import ranked

ROUNDING: Final = 1e-6
"""Cosines are sums of float32 products: one of exactly the threshold may come out this much below it."""


@dataclass(frozen=True, slots=True)
class Near:
    """Rows of the matrix that are near enough, ascending, with their cosines: (m,) int64 and (m,) float32."""

    rows: npt.NDArray[np.int64]
    cosines: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sought:
    """What the vector of one fact is to be compared with: columns as they are now, which appending does not change.

    Attributes:
        documents, matrix: Of the index.
        source: The document whose vector it is.
        before: The sequence that the others' facts must be below.
        doc: (n,) int32 document of each row of the matrix.
        fact_seq: (n,) int64 fact of each row.
        crew: (documents,) int32 crew of each document.
        vectors: (n, d) float32.
        vector: The fact's, d little-endian float32 of any norm.
        threshold: Least cosine.
    """

    documents: Documents
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
        """What is near; needs nothing of the event loop."""
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
        """The best ``k``: cosine descending, then newer ts, then id; what was replaced or taken back meanwhile is out."""
        docs = self.matrix.doc[near.rows]
        kept = np.flatnonzero((docs != NO_ROW) & (self.matrix.fact_seq[near.rows] < self.before))
        docs, scores = docs[kept], np.clip(near.cosines[kept].astype(np.float64), self.threshold, 1.0)
        return [
            SimilarEntry(self.documents.id_of(int(docs[at])), int(self.documents.seq[docs[at]]), float(scores[at]))
            for at in ranked(self.documents, docs, scores, k).tolist()
        ]


def sought(index: HotIndex, fact: VectorDerived, threshold: float) -> Sought | None:
    """What to compare the fact's vector with, see ``SimilarReader``; None if there is nothing."""
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
    """Implements ``SimilarReader`` over the indexes that recall uses.

    The comparisons run in a thread: each takes 0.9 ms at 10,000 vectors of 384 dimensions, 3.6 at 50,000, and a recall over
    HTTP takes some ten turns of the event loop, each of which would wait for one (p50 15 ms, not 6). What is asked
    meanwhile of the same vectors goes there together: the way to the thread and back costs as much as the rest.

    Args:
        views: The views.
        cache: The hot indexes.
        wait_s: Seconds to wait for the views.
    """

    def __init__(self, views: ViewReader, cache: HotCache, *, wait_s: float = MIN_SEQ_WAIT_S) -> None:
        self._views = views
        self._cache = cache
        self._wait_s = wait_s
        self._turn = asyncio.Lock()
        self._asked: list[_Asked] = []

    async def similar(self, fact: VectorDerived, k: int, threshold: float) -> list[SimilarEntry]:
        """The best ``k`` earlier entries with a cosine of at least ``threshold``; none for a model that is not active.

        Raises:
            ViewsBehind: If the views do not pass the fact in time.
        """
        await self._views.wait_for(fact.seq, self._wait_s, *INDEXED_PROJECTIONS, VECTORS_PROJECTION)
        if self._cache.active_model(fact.workspace_id) != fact.model:
            return []
        mine = _Asked(fact, k, threshold)
        self._asked.append(mine)
        try:
            async with self._turn:
                if mine.found is None:
                    await self._answer(
                        [one for one in self._asked if one.found is None and _same_vectors(one.fact, fact)]
                    )
        finally:
            self._asked.remove(mine)
        assert mine.found is not None
        return mine.found

    async def _answer(self, asked: list[_Asked]) -> None:
        """Answer what was asked of one model's vectors; what fails is raised to whom it was done for, others ask again."""
        fact = max((one.fact for one in asked), key=lambda fact: fact.seq)
        await self._cache.get(fact.workspace_id, fact.seq)
        index, matrix = await self._cache.with_matrix(fact.workspace_id, fact.model)
        over = index.over(matrix)
        compared = [(one, sought(over, one.fact, one.threshold)) for one in asked]
        wanted = [found for _, found in compared if found is not None]
        near = iter(await asyncio.to_thread(_compare, wanted) if wanted else ())
        for one, found in compared:
            one.found = found.nearest(next(near), one.k) if found is not None else []


@dataclass(slots=True, eq=False)
class _Asked:
    """One question, and its answer once there is one."""

    fact: VectorDerived
    k: int
    threshold: float
    found: list[SimilarEntry] | None = None


def _same_vectors(one: VectorDerived, other: VectorDerived) -> bool:
    return one.workspace_id == other.workspace_id and one.model == other.model


def _compare(wanted: Iterable[Sought]) -> list[Near]:
    return [one.compared() for one in wanted]
