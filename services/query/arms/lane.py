"""The result of an arm: its best documents in order.

Invariant: documents of equal score are ordered by newer ts, then id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..hot.documents import EntryColumns
from ..hot.lists import Docs, floor_of

Scores = npt.NDArray[np.float32]
Integers = npt.NDArray[np.integer]

_FEW: Final = 4
"""Up to this many times ``depth``, sorting all is faster than selecting the best first."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The best documents of one arm, best first: score, then newer ts, then id.

    Attributes:
        docs: (m,) intp.
        scores: (m,) float32.
    """

    docs: Docs
    scores: Scores


EMPTY_LANE: Final = Lane(np.empty(0, np.intp), np.empty(0, np.float32))


def ranked(
    documents: EntryColumns, docs: Integers, scores: npt.NDArray[np.floating], depth: int
) -> npt.NDArray[np.int64]:
    """Indices of the best ``depth`` documents: score descending, then newer ts, then id; no score is NaN."""
    if _FEW * depth < len(docs):  # documents below the last selected one need not be sorted
        kept = (scores >= floor_of(scores, depth)).nonzero()[0]
        best: npt.NDArray[np.int64] = kept[_sorted(documents, docs[kept], scores[kept], depth)]
        return best
    return _sorted(documents, docs, scores, depth)


def _sorted(
    documents: EntryColumns, docs: Integers, scores: npt.NDArray[np.floating], depth: int
) -> npt.NDArray[np.int64]:
    ts_ms = documents.ts_ms[docs]
    order = np.lexsort((-ts_ms, -scores))
    ordered = scores[order]
    tied = ordered[1:] == ordered[:-1]
    if np.count_nonzero(tied):  # a tenth of the time of any()
        newest = ts_ms[order]
        tied &= newest[1:] == newest[:-1]
        if np.count_nonzero(tied[:depth]):
            order = _by_id(documents, docs, order, tied, depth)
    return order[:depth]


def _by_id(
    documents: EntryColumns, docs: Integers, order: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_], depth: int
) -> npt.NDArray[np.int64]:
    """Sort runs of equal score and ts by id, as far as they reach into the first ``depth``."""
    result = order.copy()
    first = 0
    while first < min(depth, len(order)):
        end = first + 1
        while end < len(order) and tied[end - 1]:
            end += 1
        if end - first > 1:
            result[first:end] = sorted(order[first:end].tolist(), key=lambda i: documents.id_of(int(docs[i])))
        first = end
    return result
