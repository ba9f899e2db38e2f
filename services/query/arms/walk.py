"""Adds entries one hop from the hits along ``similar`` edges (seed 1, "Memory relations").

Invariant: a neighbour is in scope, is not a hit, and is returned once; retracted edges are ignored. Order: weight
descending, then newer ts, then id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..hot.index import HotIndex
from ..hot.scope import RecallScope
from .lane import ranked


@dataclass(frozen=True, slots=True)
class Walked:
    """A neighbour of a hit.

    Attributes:
        via: The hit from which it was reached: the one with the heaviest edge, then the best hit.
        weight: Weight of the edge, also the neighbour's score.
    """

    doc: int
    via: int
    weight: float


def walk(index: HotIndex, scope: RecallScope, hits: Sequence[int], k: int) -> list[Walked]:
    """At most ``k`` neighbours of hits."""
    if not hits or not len(index.edges):
        return []
    mask = index.scoped(scope).mask
    direct = frozenset(hits)
    reached: dict[int, Walked] = {}
    for hit in hits:
        for doc, weight in index.edges.neighbours(hit):
            if doc in direct or (mask is not None and not mask[doc]):
                continue
            if doc not in reached or weight > reached[doc].weight:
                reached[doc] = Walked(doc, hit, weight)
    docs = np.fromiter(sorted(reached), np.int32, len(reached))
    weights = np.array([reached[doc].weight for doc in docs.tolist()], np.float64)
    return [reached[int(docs[place])] for place in ranked(index.documents, docs, weights, k).tolist()]
