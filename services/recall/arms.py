"""The dense and the lexical arm of every search: cosine times importance, and BM25 (contract §4, seed 1).

The dense arm uses the vectors of the workspace's active model.
Every vector in scope is compared; the seed's cap at the newest 5,000 is not needed for a matrix in memory.

Invariant: a cosine does not depend on the position of its vector in the matrix. ``numpy.vecdot`` computes each row in
the same order. A matrix-vector product of BLAS does not, and its threads compete with the service for cores (10,000
vectors of 384 dimensions: 0.9 ms; BLAS 0.8 ms on one thread, 5 ms on two busy cores).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ...schemas.text.word_forms import MAX_MEANT, PLAIN, SHARE, Wording
from ..index.arrays import Docs, distinct, floor_of
from ..index.columns import HotColumn
from ..index.entry_index import HotIndex, Sums
from ..index.postings import Postings
from ..index.scoped import ScopedTexts
from ..index.vectors import NO_ROW, SKETCHED_FROM, Sketch, VectorMatrix, Vectors

# What is searched: the hot index of entries, or a shelf of other texts.


class SearchedColumns(Protocol):
    """Columns of the documents of an index."""

    @property
    def length(self) -> npt.NDArray[Any]:
        """(n,) words of each document."""
        ...

    @property
    def ts_ms(self) -> npt.NDArray[np.int64]:
        """(n,) int64 time of each document."""
        ...

    def id_of(self, doc: int, /) -> Any:
        """By what documents of one score and time are sorted."""
        ...


class SearchedIndex(Protocol):
    """An index."""

    @property
    def documents(self) -> SearchedColumns:
        """Its columns."""
        ...

    @property
    def postings(self) -> Postings:
        """Its words."""
        ...

    @property
    def sums(self) -> Sums:
        """Where the lexical arm adds up."""
        ...


# The result of an arm: its best documents in order.


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
    documents: SearchedColumns, docs: Integers, scores: npt.NDArray[np.floating], depth: int
) -> npt.NDArray[np.int64]:
    """Indices of the best ``depth`` documents: score descending, then newer ts, then id; no score is NaN."""
    if _FEW * depth < len(docs):  # documents below the last selected one need not be sorted
        kept = (scores >= floor_of(scores, depth)).nonzero()[0]
        best: npt.NDArray[np.int64] = kept[_sorted(documents, docs[kept], scores[kept], depth)]
        return best
    return _sorted(documents, docs, scores, depth)


def _sorted(
    documents: SearchedColumns, docs: Integers, scores: npt.NDArray[np.floating], depth: int
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
    documents: SearchedColumns, docs: Integers, order: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_], depth: int
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


HUBS: Final = 0.7
"""Share of a text's mean cosine with all sorts of queries that is taken off its cosine: some texts are near to everything
(Radovanović et al., 2010, "Hubs in space"). Paraphrased questions about notes among the first five: multilingual-e5-small
.594 → .698, MiniLM .740 → .760; conversations ± .003."""
NARROW_SHARE: Final = 8
"""If fewer than one in this many vectors is in scope, they are copied first; copying costs a few times the product."""
SPAN_ROWS: Final = 64
"""Mean rows of a span from which spans are compared one by one; each costs as much as comparing some ten rows."""


CANDIDATES_SHARE, CANDIDATES_EACH = 50, 20
"""Vectors whose cosine is computed after a look through their sketches: one in so many, and at least so many times the hits
wanted. Of 5,700 real texts with MiniLM, one in 50 holds .992 of the nearest .05 %, and the nearest one always."""
SAMPLED: Final = 4_096
"""Cosines that stand for all in scope where only the likeliest are computed: their mean and spread are measured."""


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
        rows: (s,) int64 rows in scope, a sample if there are very many, whose cosines were not computed; None if they were.
        known: (s,) float32 cosine of the rows in scope; None if there are none, or ``rows`` names them.
    """

    lane: Lane
    matrix: VectorMatrix | None
    importances: HotColumn
    query: Vectors
    usual: Vectors | None = None
    cosines: Scores | None = None
    known: Scores | None = None
    rows: npt.NDArray[np.integer] | None = None

    def in_scope(self) -> Scores | None:
        """(s,) float32 cosine of the rows in scope, of a sample if there are very many; None if there are none."""
        if self.matrix is None or self.rows is None:
            return self.known
        return _cosines(self.matrix, self.rows, self.query)

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


@dataclass(frozen=True, slots=True)
class ScopeCosines:
    """The cosines of the documents in scope that have a vector.

    Attributes:
        docs: (m,) int32.
        cosines: (m,) float32.
        every: (count,) float32 by document; NaN without a vector.
    """

    docs: npt.NDArray[np.int32]
    cosines: Scores
    every: Scores


def cosines_in(matrix: VectorMatrix, scoped: ScopedTexts, query: Vectors) -> ScopeCosines:
    """The cosines of all documents in scope; none of a matrix of other dimensions. No vector may have been removed."""
    every = np.full(scoped.count, np.nan, np.float32)
    if matrix.dim != len(query):
        return ScopeCosines(np.zeros(0, np.int32), EMPTY_LANE.scores, every)
    rows = scoped.rows_in(matrix)
    whole = len(rows) == len(matrix)
    docs = matrix.doc if whole else matrix.doc[rows]
    cosines = _cosines(matrix, None, query) if whole else _cosines_of(matrix, rows, query)
    every[docs] = cosines
    return ScopeCosines(docs, cosines, every)


def _cosines_of(matrix: VectorMatrix, rows: npt.NDArray[np.integer], query: Vectors) -> Scores:
    """``_cosines`` of ascending rows: span by span without a copy if they are a few spans; else as costs least."""
    bounds = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(bounds) * SPAN_ROWS < len(rows):
        cosines = np.empty(len(rows), np.float32)
        for begin, end in pairwise([0, *bounds.tolist(), len(rows)]):
            first = int(rows[begin])
            np.vecdot(matrix.vectors[first : first + end - begin], query, out=cosines[begin:end])
        return cosines
    if len(rows) * NARROW_SHARE < len(matrix):
        return _cosines(matrix, rows, query)
    every = _cosines(matrix, None, query)
    return every.take(rows)


def search_dense(
    index: HotIndex, scoped: ScopedTexts, query: Vectors, depth: int, usual: Vectors | None = None
) -> DenseResult:
    """Rank the documents in scope by ``query``, (d,) float32, L2-normalised, of the index's model."""
    matrix = index.vectors
    if matrix is None or not len(matrix):
        return DenseResult(EMPTY_LANE, None, index.importances, query)
    doc = matrix.doc
    live = doc != NO_ROW
    if scoped.mask is not None:
        live &= scoped.mask[doc]  # -1 selects the last row, which ``live`` leaves out
    if matrix.dim == len(query) and int(np.count_nonzero(live)) >= SKETCHED_FROM and matrix.sketch is not None:
        return _search_sketched(index, matrix, matrix.sketch, live, query, depth, usual)
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


def _search_sketched(
    index: HotIndex,
    matrix: VectorMatrix,
    sketch: Sketch,
    live: npt.NDArray[np.bool_],
    query: Vectors,
    depth: int,
    usual: Vectors | None,
) -> DenseResult:
    """As ``search_dense`` for many vectors: the likeliest ones by their sketch, ranked by their cosines.

    ``rows`` is a sample of the rows in scope.
    """
    estimated = sketch.cosines(query)
    estimated *= index.importances.rows.take(matrix.doc, mode="clip")
    estimated[~live] = -np.inf
    likely = max(CANDIDATES_EACH * depth, len(matrix) // CANDIDATES_SHARE)
    rows = np.argpartition(estimated, len(estimated) - likely)[-likely:]
    rows = rows[live[rows]]
    docs, cosines = matrix.doc[rows], _cosines(matrix, rows, query)
    scores = cosines * index.importances.of(docs)
    best = ranked(index.documents, docs, scores, depth)
    lane = Lane(docs[best].astype(np.intp), scores[best])
    sampled = live.nonzero()[0]
    sampled = sampled[:: max(1, len(sampled) // SAMPLED)]
    return DenseResult(lane, matrix, index.importances, query, usual, rows=sampled)


# The lexical arm: BM25 over the hot index, under a scope.


K1: Final = 1.2
B: Final = 0.75
"""With these, BM25 reaches recall@10 .649 on the development conversations (facts/retrieval.md)."""


@dataclass(frozen=True, slots=True)
class TermPart:
    """Documents in scope that contain one term, and how to score them.

    Attributes:
        term: Its key.
        docs: (p,) intp, ascending.
        tf: (p,) uint16 term frequencies; None if all are 1.
        gain: ``idf * (k1 + 1)``.
    """

    term: int
    docs: Docs
    tf: npt.NDArray[np.uint16] | None
    gain: np.float32


@dataclass(frozen=True, slots=True)
class LexicalResult:
    """The lane of the lexical arm, and the score of any other document until the next query.

    Attributes:
        lane: The best documents.
        idf: idf of each term of the query that occurs in scope.
        parts: The documents of each of these terms.
        sums: (count,) float32 BM25 of every document, in an array that the index reuses; None if no term occurs.
        meant: Words of the query that do not occur in scope, each with the words that were looked up instead.
        stands_for: Each term that was looked up instead, or as another form, and the query's term that it stands for.
        further: idf of each of these terms.
    """

    lane: Lane
    idf: Mapping[int, float]
    sums: Scores | None = None
    parts: tuple[TermPart, ...] = ()
    meant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stands_for: Mapping[int, int] = field(default_factory=dict)
    further: Mapping[int, float] = field(default_factory=dict)

    @property
    def weights(self) -> dict[int, float]:
        """Idf of every term that was found, those looked up instead of others included."""
        return {**self.idf, **self.further}

    def scores_of(self, docs: Docs) -> Scores:
        """(m,) float32 BM25 of documents in scope. Valid until the next search of the index."""
        return np.zeros(len(docs), np.float32) if self.sums is None else self.sums[docs]

    @property
    def frequencies(self) -> dict[int, int]:
        """Rows in scope that hold each term of the query; one that was replaced, or has other forms, by these."""
        found: dict[int, int] = {}
        for part in self.parts:
            term = self.stands_for.get(part.term, part.term)
            found[term] = max(found.get(term, 0), len(part.docs))
        return found

    def coverage(self, terms: Sequence[int], size: int) -> float:
        """Share of the weight of the query's terms that the best text of the lane holds.

        Args:
            terms: The terms.
            size: Rows in scope.
        """
        if not len(self.lane.docs):
            return 0.0
        best = self.lane.docs[0]
        unheard = idf_of(0, size)
        weights = {term: self.idf.get(term, unheard) for term in terms}
        held: set[int] = set()
        for part in self.parts:
            at = int(part.docs.searchsorted(best))
            if at < len(part.docs) and part.docs[at] == best:
                held.add(self.stands_for.get(part.term, part.term))
        whole = sum(weights.values())
        return sum(weights.get(term, 0.0) for term in held) / whole if whole else 1.0


NOTHING: Final = LexicalResult(EMPTY_LANE, {})


def words_in_scope(index: SearchedIndex, scoped: ScopedTexts, terms: Sequence[int]) -> LexicalResult:
    """Which documents hold the query's terms, unranked, for recipes that do not count words."""
    parts, idf = _parts(index, scoped, terms)
    return LexicalResult(EMPTY_LANE, idf, None, parts)


def search_lexical(
    index: SearchedIndex,
    scoped: ScopedTexts,
    terms: Sequence[int],
    depth: int,
    wording: Wording = PLAIN,
    *,
    once: bool = False,
) -> LexicalResult:
    """Rank the documents in scope by BM25; ``terms`` are term keys, duplicates count once.

    Args:
        index: The index.
        scoped: The documents in scope.
        terms: The query's.
        depth: Documents of the lane; 0 for none, where all are scored.
        wording: Other forms of the query's words, and words that may be meant by unknown ones.
        once: Whether a word that is looked up instead of another one does not count if the query has it itself.
    """
    parts, idf = _parts(index, scoped, terms)
    missing = [term for term in terms if term not in idf]
    further, meant, stands_for, weights = _further_parts(index, scoped, missing, wording, idf if once else None)
    parts += further
    if not parts:
        return NOTHING
    average = scoped.total_length / scoped.size
    slope = np.float32(K1 * B / average) if average else np.float32(0.0)
    sums, touched = index.sums.begin([part.docs for part in parts], scoped.count)
    norms = index.documents.length[touched].astype(np.float32)
    norms *= slope
    norms += np.float32(K1 * (1.0 - B))
    begin = 0
    for part in parts:
        sums[part.docs] += _share(part, norms[begin : (begin := begin + len(part.docs))])
    if not depth:
        return LexicalResult(EMPTY_LANE, idf, sums, parts, meant, stands_for, weights)
    long = [part for part in parts if len(part.docs) > depth]
    if long:  # one list alone is long enough; documents of the rarest term score highest
        rarest = max(long, key=lambda part: part.gain)
        touched = touched[(sums[touched] >= floor_of(sums[rarest.docs], depth)).nonzero()[0]]
    docs = distinct(touched)
    scores = sums[docs]
    best = ranked(index.documents, docs, scores, depth)
    return LexicalResult(Lane(docs[best], scores[best]), idf, sums, parts, meant, stands_for, weights)


def _share(part: TermPart, norm: Scores) -> Scores:
    """(p,) float32 share of a term in the score of each of its documents; uses up ``norm``.

    Args:
        part: The term.
        norm: (p,) float32 ``k1 * (1 - b + b * |d| / avg)``.
    """
    if part.tf is None:
        norm += np.float32(1.0)
        return np.divide(part.gain, norm, out=norm)
    often = part.tf.astype(np.float32)
    norm += often
    often *= part.gain
    return np.divide(often, norm, out=norm)


def idf_of(frequency: int, size: int) -> float:
    """Inverse document frequency of a term that occurs in ``frequency`` of ``size`` rows."""
    return math.log(1.0 + (size - frequency + 0.5) / (frequency + 0.5))


def _further_parts(
    index: SearchedIndex, scoped: ScopedTexts, missing: Sequence[int], wording: Wording, skipped: Collection[int] | None
) -> tuple[tuple[TermPart, ...], dict[str, tuple[str, ...]], dict[int, int], dict[int, float]]:
    """Other forms, and words that replace the missing ones: their parts; which words; ``stands_for``; idf.

    ``skipped`` are not looked up instead of others, nor is a term twice; with None, any term is.
    """
    if not missing and not wording.forms:
        return (), {}, {}, {}
    parts, weights = _parts(index, scoped, list(wording.forms), SHARE)
    stands_for = {form: wording.forms[form] for form in weights}
    with_form = set(stands_for.values())
    terms = {word: term for term, word in wording.written.items()}
    meant: dict[str, tuple[str, ...]] = {}
    for word, groups in wording.meant([term for term in missing if term not in with_form]):
        for group in groups:
            _, counts = _parts(index, scoped, index.postings.held(list(group)))
            if skipped is not None:
                counts = {term: idf for term, idf in counts.items() if term not in skipped and term not in weights}
            chosen = sorted(counts, key=lambda term: (counts[term], term))[:MAX_MEANT]
            if chosen:
                parts += _parts(index, scoped, chosen, SHARE)[0]
                weights |= {term: counts[term] for term in chosen}
                meant[word] = tuple(group[term] for term in chosen)
                stands_for |= dict.fromkeys(chosen, terms[word])
                break
    return parts, meant, stands_for, weights


def _parts(
    index: SearchedIndex, scoped: ScopedTexts, terms: Sequence[int], share: float = 1.0
) -> tuple[tuple[TermPart, ...], dict[int, float]]:
    """The postings in scope of each term, split by term frequency 1 and above, and the idf of the terms."""
    parts: list[TermPart] = []
    idfs: dict[int, float] = {}
    wanted = list(dict.fromkeys(terms)) if scoped.size else []
    for term, postings in zip(wanted, index.postings.of(wanted), strict=True):
        once, often, tf = postings.once, postings.often, postings.tf
        if scoped.mask is not None:
            once = once[scoped.mask[once]]
            inside = scoped.mask[often]
            often, tf = often[inside], tf[inside]
        frequency = len(once) + len(often)
        if not frequency:
            continue
        idf = idfs[term] = idf_of(frequency, scoped.size)
        gain = np.float32(share * idf * (K1 + 1.0))
        if len(once):
            parts.append(TermPart(term, once.astype(np.intp), None, gain))
        if len(often):
            parts.append(TermPart(term, often.astype(np.intp), tf, gain))
    return tuple(parts), idfs
