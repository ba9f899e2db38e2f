"""The one search of texts other than entries: runs the arms over a shelf and joins them as a recipe says.

Invariant: a pure function of shelf, scope and query; scores depend only on the query and the texts in scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.text.analyzer import Analyzer
from ..index.arrays import Docs, union
from ..index.scoped import ScopedTexts
from ..index.shelf import Shelf
from ..index.vectors import Vectors
from .arms import EMPTY_LANE, K1, Lane, LexicalResult, ScopeCosines, Scores, cosines_in, idf_of, ranked, search_lexical
from .asking import Query
from .calibration import known_calibration
from .evidence import LEAST_VECTORS
from .fusion import ranks_among, reciprocal_ranks
from .recipes import SIMILAR, TextFusion, TextRecipe

LIKENESS: Final = 2.5
"""Standard deviations above the mean cosine from which a text that shares no word is a hit; one vector in 160 of a normal
distribution."""
_ROUNDING: Final = 1e-6
"""Of float32."""

_NO_ORDER: Final = np.zeros(0, np.int32)


def cosine_floor(cosines: Scores, model: str | None) -> float:
    """The cosine from which a text that shares no word is a hit.

    The model's, if it is known; else one that few texts in scope reach. With few vectors, only words count.
    """
    if (calibration := known_calibration(model)) is not None:
        return calibration.mean + LIKENESS * calibration.deviation
    if len(cosines) < LEAST_VECTORS:
        return np.inf
    return float(cosines.mean() + LIKENESS * cosines.std())


@dataclass(frozen=True, slots=True)
class TextHit:
    """A text that was found.

    Attributes:
        slot: Its slot on the shelf.
        score: Its rank follows from this.
        cosine: Its cosine; None without a vector.
    """

    slot: int
    score: float
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, best first, and the values they were found by.

    Attributes:
        hits: The hits.
        weights: idf of each term that was found.
        bm25: (n,) float32 of every text; valid until the next search of the shelf. None if no term occurs.
        best: BM25 that a text could reach that is all the query.
    """

    hits: list[TextHit]
    weights: Mapping[int, float] = field(default_factory=dict)
    bm25: Scores | None = None
    best: float = 1.0

    def similarity(self, hit: TextHit) -> float:
        """The cosine, else BM25 as a share of the best possible; 0 to 1."""
        share = 0.0 if self.bm25 is None else float(self.bm25[hit.slot]) / self.best
        return min(1.0, max(0.0, share if hit.cosine is None else hit.cosine))


def find(
    shelf: Shelf,
    scoped: ScopedTexts,
    query: Query,
    recipe: TextRecipe,
    k: int,
    *,
    beside: Mapping[int, float] | None = None,
    before: npt.NDArray[np.int32] = _NO_ORDER,
    among: npt.NDArray[np.bool_] | None = None,
    least: float | None = None,
) -> Found:
    """The best ``k`` texts in scope: score descending, then newer, then name, owner and line.

    Args:
        shelf: The texts.
        scoped: Those in scope.
        query: The query; its vector must be of the shelf's model.
        recipe: How they are ranked.
        k: Most hits.
        beside: Slots in scope that a family's own arm found, with their weights; they are candidates in any case.
        before: (n,) int32 slot of the text before each, -1 if there is none; for ``TextRecipe.follows``.
        among: (n,) bool: which texts may be hits, if they are fewer than those in scope.
        least: The cosine from which a text that shares no word is a hit; ``cosine_floor`` if None.
    """
    depth = max(recipe.depth, k)
    terms = query.terms or Analyzer.stop_keys(query.text)  # of a query of nothing but stop words, every word counts
    by_lane = recipe.fusion in (TextFusion.RECIPROCAL_RANK, TextFusion.NEAREST)
    lexical = search_lexical(shelf, scoped, terms, depth if by_lane else 0, query.wording, once=True)
    cosines = None if query.vector is None else cosines_in(shelf.vectors, scoped, query.vector)
    weights = lexical.weights
    possible = sum(weights.values())
    if recipe.fusion is TextFusion.HIGHER:
        unheard = idf_of(0, scoped.size)
        possible = sum(weights.get(term, unheard) for term in dict.fromkeys(terms))
    best = possible * (K1 + 1.0) or 1.0
    arms = _Arms(shelf, scoped, lexical, cosines, least)
    if recipe.fusion is TextFusion.RECIPROCAL_RANK:
        docs, scores = arms.by_ranks(depth, recipe.rank_constant)
    elif recipe.fusion is TextFusion.SHARES:
        docs, scores = arms.by_shares(beside or {}, before, recipe.follows)
    elif recipe.fusion is TextFusion.HIGHER:
        docs, scores = arms.higher(best)
    else:
        docs, scores = arms.nearest(depth)
    if among is not None:
        inside = among[docs]
        docs, scores = docs[inside], scores[inside]
    order = ranked(shelf, docs, scores, k)
    chosen = [TextHit(slot, score, arms.cosine(slot)) for slot, score in _pairs(docs[order], scores[order])]
    if beside and recipe.fusion is TextFusion.NEAREST:
        known = {hit.slot for hit in chosen}
        chosen += [TextHit(slot, 0.0, arms.cosine(slot)) for slot in beside if slot not in known]
    return Found(chosen, weights, lexical.sums, best)


class _Arms:
    """The results of the arms, and how they are joined: each way gives candidates and their scores."""

    def __init__(
        self,
        shelf: Shelf,
        scoped: ScopedTexts,
        lexical: LexicalResult,
        cosines: ScopeCosines | None,
        least: float | None,
    ) -> None:
        self._shelf = shelf
        self._least = least
        self._count = scoped.count
        self._mask = scoped.mask
        self._lexical = lexical
        self._known = cosines
        self._cosines = None if cosines is None else cosines.every

    def cosine(self, slot: int) -> float | None:
        """The cosine of a text; None without a vector."""
        if self._cosines is None or (cosine := float(self._cosines[slot])) != cosine:
            return None
        return cosine

    def by_ranks(self, depth: int, constant: int) -> tuple[Docs, npt.NDArray[np.floating]]:
        """Sums of reciprocal ranks; BM25 itself without vectors."""
        by_words = self._lexical.lane
        if self._cosines is None:
            return by_words.docs, by_words.scores
        by_meaning = self._nearest(depth)
        near = (by_meaning.scores >= self._floor()) | np.isin(by_meaning.docs, by_words.docs, kind="sort")
        docs = union(by_words.docs, by_meaning.docs[near])
        lexical, dense = (
            reciprocal_ranks(ranks_among(docs, lane, ranks), constant)
            for lane, ranks in (
                (by_words.docs, np.arange(1, len(by_words.docs) + 1)),
                (by_meaning.docs[near], near.nonzero()[0] + 1),
            )
        )
        return docs, np.where(np.isnan(self._cosines[docs]), 2.0, 1.0) * lexical + dense

    def by_shares(
        self, beside: Mapping[int, float], before: npt.NDArray[np.int32], follows: float
    ) -> tuple[Docs, npt.NDArray[np.floating]]:
        """Sums of shares of the best of each arm; a text gains from a better one before it."""
        bm25 = self._bm25()
        lexical = bm25 / (bm25.max(initial=0.0) or 1.0)
        own, is_hit = lexical.copy(), lexical > 0.0
        if self._cosines is not None:
            lacking = np.isnan(self._cosines)
            cosines = np.where(lacking, 0.0, self._cosines)
            own += np.where(lacking, lexical, np.maximum(cosines, 0.0) / (cosines.max(initial=0.0) or 1.0))
            is_hit |= ~lacking & (cosines >= self._floor())
        most = max(beside.values(), default=1.0)
        for slot, weight in beside.items():
            own[slot] += weight / most
            is_hit[slot] = True
        own[~is_hit] = 0.0
        if follows:
            own += follows * np.maximum(self._behind(own, before) - own, 0.0)
        docs = np.flatnonzero(own)
        return docs, own[docs]

    def higher(self, best: float) -> tuple[Docs, npt.NDArray[np.floating]]:
        """The higher of cosine and of BM25 as a share of ``best``."""
        similarity = self._bm25().astype(np.float64) / best
        if self._known is not None:
            high = self._known.cosines >= max(0.0, self._floor())
            near = self._known.docs[high]
            cosines = np.minimum(1.0, np.round(self._known.cosines[high].astype(np.float64), _DIGITS))
            similarity[near] = np.maximum(similarity[near], cosines)
        docs = np.flatnonzero(similarity)
        return docs, similarity[docs]

    def nearest(self, depth: int) -> tuple[Docs, npt.NDArray[np.floating]]:
        """The lane of the dense arm, else of the lexical one."""
        lane = self._lexical.lane if self._cosines is None else self._nearest(depth)
        return lane.docs, lane.scores

    def _bm25(self) -> Scores:
        sums = self._lexical.sums
        return np.zeros(self._count, np.float32) if sums is None else sums

    def _floor(self) -> float:
        if self._least is not None:
            return self._least
        return np.inf if self._known is None else cosine_floor(self._known.cosines, self._shelf.model)

    def _nearest(self, depth: int) -> Lane:
        """The dense arm."""
        if self._known is None or not len(self._known.docs):
            return EMPTY_LANE
        best = ranked(self._shelf, self._known.docs, self._known.cosines, depth)
        return Lane(self._known.docs[best].astype(np.intp), self._known.cosines[best])

    def _behind(self, own: Scores, before: npt.NDArray[np.int32]) -> Scores:
        """The score of the text before each."""
        inside = before >= 0 if self._mask is None else (before >= 0) & self._mask
        return np.where(inside, own[before], np.float32(0.0))


_DIGITS: Final = 6


def _pairs(docs: Docs, scores: npt.NDArray[np.floating]) -> list[tuple[int, float]]:
    return list(zip(docs.tolist(), scores.tolist(), strict=True))


def alike(shelf: Shelf, vector: Vectors, least: float, k: int) -> list[TextHit]:
    """The texts whose cosine with a vector is at least ``least``, the most similar first."""
    query = Query("", (), vector)
    return [hit for hit in find(shelf, shelf.scoped(), query, SIMILAR, k).hits if hit.score >= least]


def of_same_words(
    shelf: Shelf, counts: Counter[int], least: float, k: int, *, without_vector: bool = False
) -> list[TextHit]:
    """The texts whose counts of words have a cosine of at least ``least`` with these, the most similar first.

    Args:
        shelf: The texts.
        counts: Term → how often.
        least: The cosine.
        k: Most hits.
        without_vector: Whether only texts without a vector count.
    """
    products = np.zeros(len(shelf), np.float32)
    for postings, count in zip(shelf.postings.of(list(counts)), counts.values(), strict=True):
        products[postings.once] += count
        products[postings.often] += count * postings.tf
    norm = np.sqrt(sum(count * count for count in counts.values())) or 1.0
    cosines = products / (norm * np.maximum(shelf.norm, 1e-9))
    among = shelf.live & (cosines >= least - _ROUNDING)
    if without_vector:
        among &= shelf.vectors.lacking(len(shelf))
    slots = np.flatnonzero(among)
    best = slots[ranked(shelf, slots, cosines[slots], k)]
    return [TextHit(slot, score) for slot, score in _pairs(best, cosines[best])]
