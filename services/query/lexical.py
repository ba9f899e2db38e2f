"""The lexical arm: BM25 over the hot index, under a scope.

score(d) = sum over query terms t of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg))
idf(t) = ln(1 + (N - df + .5) / (df + .5)), with N, df and avg counted over the rows in scope
(Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009; the +1 keeps idf positive).

Invariant: the scores depend on the rows in scope and the query alone, to the last bit: not on how the postings are cut
into segments, nor on anything out of scope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from crew_journal.services.query.documents import Documents
from crew_journal.services.query.hot_index import HotIndex
from crew_journal.services.query.scoped import ScopedDocuments

Docs = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]

K1: Final = 1.2
B: Final = 0.75
"""facts/retrieval.md: BM25 with these and our analyser .649 on the development conversations."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The best documents of one arm, best first: score, then newer ts, then id.

    Attributes:
        docs: (m,) int32.
        scores: (m,) float32.
    """

    docs: Docs
    scores: Scores


EMPTY_LANE: Final = Lane(np.empty(0, np.int32), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class LexicalResult:
    """What the lexical arm found: its lane, and enough to score any other document."""

    lane: Lane
    parts: tuple[tuple[Docs, Scores], ...]

    def scores_of(self, docs: Docs) -> Scores:
        """(m,) float32 BM25 of any documents in scope; 0 where no term occurs."""
        scores = np.zeros(len(docs), np.float32)
        for own, values in self.parts:
            place = np.minimum(own.searchsorted(docs), len(own) - 1)
            scores += np.where(own[place] == docs, values[place], np.float32(0.0))
        return scores


def ranked(documents: Documents, docs: Docs, scores: npt.NDArray[np.floating], depth: int) -> npt.NDArray[np.int64]:
    """Indices of the best ``depth`` documents: score descending, then newer ts, then id."""
    ts_ms = documents.ts_ms[docs]
    order = np.lexsort((-ts_ms, -scores))
    tied = (scores[order][1:] == scores[order][:-1]) & (ts_ms[order][1:] == ts_ms[order][:-1])
    if bool(tied[:depth].any()):
        order = _by_id(documents, docs, order, tied, depth)
    return order[:depth]


def _by_id(
    documents: Documents, docs: Docs, order: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_], depth: int
) -> npt.NDArray[np.int64]:
    """Put runs of equal score and ts, as far as they reach into the first ``depth``, in order of id."""
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


def search_lexical(index: HotIndex, scoped: ScopedDocuments, terms: Sequence[int], depth: int) -> LexicalResult:
    """BM25 of a query.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        terms: Term keys of the query; repeats count once.
        depth: Length of the lane.
    """
    parts = _parts(index, scoped, terms)
    if not parts:
        return LexicalResult(EMPTY_LANE, ())
    sums = index.accumulator(scoped.count)
    for docs, values in parts:
        sums[docs] += values
    touched = np.concatenate([docs for docs, _ in parts])
    values = sums[touched]
    sums[touched] = 0.0
    # a document stands in ``touched`` once a term at most, so the best depth * terms values cover the best depth of them
    enough = depth * len(parts)
    if enough < len(values):
        least = np.partition(values, len(values) - enough)[len(values) - enough]
        keep = values >= least
        touched, values = touched[keep], values[keep]
    docs, first = np.unique(touched, return_index=True)
    scores = values[first]
    best = ranked(index.documents, docs, scores, depth)
    return LexicalResult(Lane(docs[best], scores[best]), parts)


def _parts(index: HotIndex, scoped: ScopedDocuments, terms: Sequence[int]) -> tuple[tuple[Docs, Scores], ...]:
    """Documents in scope with their share of the score, per term: those that hold it once, those that hold it often."""
    if not scoped.size:
        return ()
    average = scoped.total_length / scoped.size
    flat = np.float32(K1 * (1.0 - B))
    slope = np.float32(K1 * B / average) if average else np.float32(0.0)
    length = index.documents.length
    parts: list[tuple[Docs, Scores]] = []
    for term in dict.fromkeys(terms):
        found = index.postings.of(term)
        if found is None:
            continue
        once, often, tf = found.once, found.often, found.tf
        if scoped.mask is not None:
            once = once[scoped.mask[once]]
            inside = scoped.mask[often]
            often, tf = often[inside], tf[inside]
        frequency = len(once) + len(often)
        if not frequency:
            continue
        idf = math.log(1.0 + (scoped.size - frequency + 0.5) / (frequency + 0.5))
        gain = np.float32(idf * (K1 + 1.0))
        if len(once):
            norm = length[once].astype(np.float32)
            norm *= slope
            norm += flat + np.float32(1.0)
            parts.append((once, np.divide(gain, norm, out=norm)))
        if len(often):
            many = tf.astype(np.float32)
            norm = length[often].astype(np.float32)
            norm *= slope
            norm += flat
            norm += many
            many *= gain
            parts.append((often, np.divide(many, norm, out=norm)))
    return tuple(parts)
