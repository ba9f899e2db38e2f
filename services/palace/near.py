"""Finds the drawers nearest to vectors or drawers in the hot index, for reactors (``Finder``).

Invariant: only live drawers with a vector of the workspace's active model are near.
"""

from __future__ import annotations

import asyncio

import numpy as np

from ...schemas.core.ports import NearQuery, NearText
from ..index.vectors import NO_ROW, Vectors, normalised
from ..recall.arms import ranked
from .drawer_index import DrawerIndex
from .searching import DrawerSearch


class NearDrawers:
    """Finds drawers for ``Finder``; the comparison runs in a thread."""

    def __init__(self, search: DrawerSearch) -> None:
        self._search = search

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """See ``Finder.nearest``."""
        index = await self._search.index(query.workspace_id, query.before)
        matrix, live = index.vectors, index.live
        own = [index.slot_of(item) for item in query.items]
        held = [None if slot is None else index.vector_of(slot) for slot in own]
        vectors = [np.frombuffer(vector, "<f4") for vector in query.vectors]
        vectors += [np.zeros(0, np.float32) if vector is None else vector[0] for vector in held]
        known = [at for at, vector in enumerate(vectors) if len(vector) == matrix.dim]
        answers: list[list[NearText]] = [[] for _ in vectors]
        if index.model != query.model or not known:
            return answers
        counts = (matrix.doc != NO_ROW) & live[matrix.doc]
        if query.before:
            counts &= matrix.fact_seq < query.before
        rows = np.flatnonzero(counts)
        compared = normalised(np.stack([vectors[at] for at in known]))
        cosines = await asyncio.to_thread(_cosines, matrix.vectors, compared)
        slots = matrix.doc[rows].astype(np.intp)
        for at, scores in zip(known, cosines[:, rows], strict=True):
            itself = own[at - len(query.vectors)] if at >= len(query.vectors) else None
            near = scores >= query.least
            if itself is not None:
                near &= slots != itself
            answers[at] = _best(index, slots[near], scores[near], query.k)
        return answers


def _cosines(vectors: Vectors, compared: Vectors) -> Vectors:
    """(m, n) float32 cosines of m vectors with the n of a matrix."""
    cosines: Vectors = compared @ vectors.T
    return cosines


def _best(index: DrawerIndex, slots: np.ndarray, scores: Vectors, k: int) -> list[NearText]:
    """The best of some slots, without drawers that were removed meanwhile."""
    live = index.live[slots]
    slots, scores = slots[live], scores[live]
    return [
        NearText(index.at(int(slots[place])).drawer_id, float(scores[place]))
        for place in ranked(index, slots, scores, k).tolist()
    ]
