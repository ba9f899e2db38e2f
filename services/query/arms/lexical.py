"""The lexical arm: BM25 over the hot index, under a scope.

score(d) = sum over query terms t of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg))
idf(t) = ln(1 + (N - df + .5) / (df + .5)), with N, df and avg counted over the rows in scope
(Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009; the +1 keeps idf positive).

Invariant: scores depend only on the query and the rows in scope, not on how postings are divided into segments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.rules.spelling import MAX_MEANT, PLAIN, SHARE, Wording
from ..hot.index import HotIndex
from ..hot.lists import Docs, distinct, floor_of
from ..hot.scoped import ScopedDocuments
from .lane import EMPTY_LANE, Lane, Scores, ranked

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
    """

    lane: Lane
    idf: Mapping[int, float]
    sums: Scores | None = None
    parts: tuple[TermPart, ...] = ()
    meant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stands_for: Mapping[int, int] = field(default_factory=dict)

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


def words_in_scope(index: HotIndex, scoped: ScopedDocuments, terms: Sequence[int]) -> LexicalResult:
    """Which documents hold the query's terms, unranked, for recipes that do not count words."""
    parts, idf = _parts(index, scoped, terms)
    return LexicalResult(EMPTY_LANE, idf, None, parts)


def search_lexical(
    index: HotIndex, scoped: ScopedDocuments, terms: Sequence[int], depth: int, wording: Wording = PLAIN
) -> LexicalResult:
    """Rank the documents in scope by BM25; ``terms`` are term keys, duplicates count once."""
    parts, idf = _parts(index, scoped, terms)
    further, meant, stands_for = _further_parts(index, scoped, [term for term in terms if term not in idf], wording)
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
    long = [part for part in parts if len(part.docs) > depth]
    if long:  # one list alone is long enough; documents of the rarest term score highest
        rarest = max(long, key=lambda part: part.gain)
        touched = touched[(sums[touched] >= floor_of(sums[rarest.docs], depth)).nonzero()[0]]
    docs = distinct(touched)
    scores = sums[docs]
    best = ranked(index.documents, docs, scores, depth)
    return LexicalResult(Lane(docs[best], scores[best]), idf, sums, parts, meant, stands_for)


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
    index: HotIndex, scoped: ScopedDocuments, missing: Sequence[int], wording: Wording
) -> tuple[tuple[TermPart, ...], dict[str, tuple[str, ...]], dict[int, int]]:
    """The parts of other forms and of words that replace the missing ones; which words those are; ``stands_for``."""
    if not missing and not wording.forms:
        return (), {}, {}
    parts, counts = _parts(index, scoped, list(wording.forms), SHARE)
    stands_for = {form: wording.forms[form] for form in counts}
    with_form = set(stands_for.values())
    terms = {word: term for term, word in wording.written.items()}
    meant: dict[str, tuple[str, ...]] = {}
    for word, groups in wording.meant([term for term in missing if term not in with_form]):
        for group in groups:
            _, counts = _parts(index, scoped, index.postings.held(list(group)))
            chosen = sorted(counts, key=lambda term: (counts[term], term))[:MAX_MEANT]
            if chosen:
                parts += _parts(index, scoped, chosen, SHARE)[0]
                meant[word] = tuple(group[term] for term in chosen)
                stands_for |= dict.fromkeys(chosen, terms[word])
                break
    return parts, meant, stands_for


def _parts(
    index: HotIndex, scoped: ScopedDocuments, terms: Sequence[int], share: float = 1.0
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
