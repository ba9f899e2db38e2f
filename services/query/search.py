"""One search: runs the arms, joins their candidates, applies the recipe, and returns the best k.

Invariant: a pure function of index, scope and query; no ``await`` and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.rules.statements import QueryKind
from .arms.dense import DenseResult, DenseScores, search_dense
from .arms.lane import EMPTY_LANE, Lane, ranked
from .arms.late_lane import late_lane, shares_behind
from .arms.lexical import LexicalResult, idf_of, search_lexical, words_in_scope
from .arms.wording import PLAIN, Wording
from .hot.index import HotIndex
from .hot.lists import Docs, place_among, union
from .hot.scope import Scope
from .hot.scoped import ScopedDocuments
from .hot.vector_matrix import Vectors
from .ranking.conflicts import latest_first
from .ranking.conversational import (
    AskedOf,
    LateQuery,
    Seen,
    conversation_shares,
    with_next_turns,
)
from .ranking.features import features_of
from .ranking.fusion import reciprocal_ranks, weighted_z, z_scores
from .ranking.session_rules import rule_shares
from .recipes import Fusion, Recipe, told_recipe

Floats = npt.NDArray[np.float64]

JUDGED: Final = 10
"""Hits by which an answer as a whole is judged, however few are wanted."""


@dataclass(frozen=True, slots=True)
class Query:
    """A prepared query.

    Attributes:
        text: Text of the query, in which speakers' names are searched.
        vector: (d,) float32, L2-normalised, of the index's model; None if there is none.
        late: What late interaction compares; None if it takes no part.
        day: The day of the question, days since 1970-01-01 (UTC), for relative dates; None if not known.
        words: Term key → the folded word of the query that it stands for.
        told: Whether it asks, states or quotes.
        queries: (d,) float32 mean vector of all sorts of queries under the same model; None if it was not measured.
        as_of_day: The day that the question is about, if it names one; days since 1970-01-01.
    """

    text: str
    terms: Sequence[int]
    vector: Vectors | None
    late: LateQuery | None = None
    day: int | None = None
    wording: Wording = PLAIN
    words: Mapping[int, str] = field(default_factory=dict)
    told: QueryKind = QueryKind.ASKS
    queries: Vectors | None = None
    as_of_day: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a hit's rank.

    Attributes:
        lexical_rank: Rank from 1 in the lexical list, or None.
        dense_rank: Rank from 1 in the dense list, or None.
        shares: What each arm and rule adds; the recipe ranks by their sum.
        meant: Words of the query that do not occur in scope, each with the words that were looked up instead.
    """

    lexical_rank: int | None
    lexical_score: float
    dense_rank: int | None
    cosine: float | None
    importance: float | None
    shares: dict[str, float]
    meant: Mapping[str, tuple[str, ...]]


class Found(NamedTuple):
    """A hit: document, reported score, cosine (None without a vector) and, on request, the explanation."""

    doc: int
    score: float
    explanation: Explanation | None
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """One search, with the values by which its hits are judged.

    Attributes:
        hits: The best ``k``, best first.
        docs: (m,) intp candidates, ascending.
        order: (n,) int64 place among the candidates of the hits, and of those that follow as far as ``JUDGED``.
        total: (m,) float64 what the candidates are ranked by.
        shares: Name → (m,) float64: what each arm and rule adds to it.
        static: (m,) float64 late interaction by word pieces; NaN where there is none.
        context: (m,) float64 late interaction in context, likewise.
        cosine: (m,) float32 cosine; NaN without a vector.
        lexical: The result of the lexical arm.
        dense: The result of the dense arm; None if it did not run.
        scoped: The rows in scope.
    """

    hits: list[Found]
    docs: Docs
    order: npt.NDArray[np.int64]
    total: Floats
    shares: Mapping[str, Floats]
    static: Floats
    context: Floats
    cosine: npt.NDArray[np.float32]
    lexical: LexicalResult
    dense: DenseResult | None
    scoped: ScopedDocuments


@dataclass(frozen=True, slots=True)
class _Candidates:
    docs: Docs  # ascending
    lexical: LexicalResult
    dense: DenseResult | None
    bm25: npt.NDArray[np.float32]
    vectors: DenseScores


def search(
    index: HotIndex, scope: Scope, query: Query, recipe: Recipe, k: int, *, explain: bool = False
) -> list[Found]:
    """The best ``k`` entries in scope: score descending, then newer ts, then id.

    If one arm has no input (no vector, only stop words), the other alone decides.
    """
    return searched(index, scope, query, recipe, k, explain=explain).hits


def searched(index: HotIndex, scope: Scope, query: Query, recipe: Recipe, k: int, *, explain: bool = False) -> Searched:
    """The same search with the values by which its hits are judged."""
    recipe = told_recipe(recipe, query.told)
    scoped = index.scoped(scope)
    depth = recipe.depth(k)
    if recipe.fusion is Fusion.DENSE:
        lexical = words_in_scope(index, scoped, query.terms)
    else:
        lexical = search_lexical(index, scoped, query.terms, depth, query.wording)
    dense = None
    if recipe.uses_vectors and query.vector is not None:
        dense = search_dense(index, scoped, query.vector, depth)
    dense_docs = dense.lane.docs if dense is not None else EMPTY_LANE.docs
    docs = lane_docs = union(lexical.lane.docs, dense_docs)
    beside = None
    if recipe.turns is not None:
        docs, beside = with_next_turns(index, scoped, docs)
    usual = query.queries if recipe.fusion in (Fusion.Z_SCORE, Fusion.CONVERSATION) else None
    found = _candidates(docs, lexical, dense, usual)
    if recipe.covered and dense is not None:
        recipe = _as_covered(recipe, query, found, scoped.size)
    static = context = np.full(len(docs), np.nan)
    if beside is not None:
        seen = Seen(docs, place_among(lane_docs, docs), lexical.lane.docs, found.bm25, found.vectors.weighted)
        question = AskedOf(query.text, query.late, lexical.idf, scoped.size, query.day)
        ranking = conversation_shares(index, scoped, question, seen, beside, recipe)
        shares, static, context = ranking.shares, ranking.static, ranking.context
    elif recipe.fusion is Fusion.Z_SCORE:
        shares = _z_shares(found, recipe)
        if recipe.rules is not None:
            features = features_of(index, scoped, query.text, docs)
            shares |= rule_shares(shares["lexical"] + shares["dense"], features, recipe.rules)
    elif recipe.fusion is Fusion.RECIPROCAL_RANK:
        shares = _rank_shares(found, recipe)
    elif recipe.fusion is Fusion.DENSE:
        shares = {"dense": found.vectors.weighted.astype(np.float64)}
    else:
        shares = {"lexical": found.bm25.astype(np.float64)}
    if recipe.turns is not None and len(docs) < k:
        added, values = late_lane(index, scoped, query.late, lexical.idf, docs, recipe.turns)
        if len(added):
            shares = shares_behind(shares, docs, added, values)
            static = _widened(static, docs, added, values)
            context = _widened(context, docs, added, np.full(len(added), np.nan))
            docs = union(docs, added)
            found = _candidates(docs, lexical, dense, usual)
    total = sum(shares.values(), np.zeros(len(docs)))
    order = ranked(index.documents, docs, total, max(k, JUDGED))
    if query.told is not QueryKind.ASKS and recipe.rules is not None:
        first = min(k, JUDGED)
        order = np.concatenate((latest_first(index, docs, order[:first]), order[first:]))
    best = order[:k]
    reported = _reported(recipe, total[best], found.vectors.cosine[best])
    why = _explanations(found, shares, best) if explain else [None] * len(best)
    cosines = found.vectors.cosine[best].tolist()
    hits = [
        Found(int(docs[i]), float(score), one, None if isnan(cosine) else cosine)
        for i, score, one, cosine in zip(best, reported, why, cosines, strict=True)
    ]
    return Searched(hits, docs, order, total, shares, static, context, found.vectors.cosine, lexical, dense, scoped)


def _widened(values: Floats, docs: Docs, added: Docs, own: Floats) -> Floats:
    """Values of the candidates and of those added, in ascending order of document."""
    every: Floats = np.concatenate((values, own))[np.argsort(np.concatenate((docs, added)), kind="stable")]
    return every


def _candidates(docs: Docs, lexical: LexicalResult, dense: DenseResult | None, queries: Vectors | None) -> _Candidates:
    nothing = np.full(len(docs), np.nan, np.float32)
    vectors = dense.scores_of(docs, queries) if dense is not None else DenseScores(nothing, nothing)
    return _Candidates(docs, lexical, dense, lexical.scores_of(docs), vectors)


def _z_shares(found: _Candidates, recipe: Recipe) -> dict[str, Floats]:
    lexical, dense = weighted_z(z_scores(found.bm25), z_scores(found.vectors.weighted), recipe.dense_weight)
    return {"lexical": lexical, "dense": dense}


def _as_covered(recipe: Recipe, query: Query, found: _Candidates, size: int) -> Recipe:
    """The recipe; if no text holds much of the query, its words say little, and their weight goes to meaning."""
    coverage = _coverage(query, found, size)
    if coverage >= recipe.covered:
        return recipe
    return replace(recipe, dense_weight=1.0 - (1.0 - recipe.dense_weight) * coverage / recipe.covered)


def _coverage(query: Query, found: _Candidates, size: int) -> float:
    """Share of the weight of the query's words that the best text of the lexical arm holds."""
    lane = found.lexical.lane.docs
    if not len(lane):
        return 0.0
    unheard = idf_of(0, size)
    weights = {term: found.lexical.idf.get(term, unheard) for term in query.terms}
    held: set[int] = set()
    for part in found.lexical.parts:
        at = int(part.docs.searchsorted(lane[0]))
        if at < len(part.docs) and part.docs[at] == lane[0]:
            held.add(found.lexical.stands_for.get(part.term, part.term))
    whole = sum(weights.values())
    return sum(weights.get(term, 0.0) for term in held) / whole if whole else 1.0


def _rank_shares(found: _Candidates, recipe: Recipe) -> dict[str, Floats]:
    dense = found.dense.lane if found.dense is not None else EMPTY_LANE
    return {
        "lexical": reciprocal_ranks(_ranks(found.lexical.lane, found.docs), recipe.rank_constant),
        "dense": reciprocal_ranks(_ranks(dense, found.docs), recipe.rank_constant),
    }


def _ranks(lane: Lane, docs: Docs) -> npt.NDArray[np.int64]:
    """(m,) rank from 1 of each candidate in a lane, 0 if not in it."""
    ranks = np.zeros(len(docs), np.int64)
    ranks[docs.searchsorted(lane.docs)] = np.arange(1, len(lane.docs) + 1)
    return ranks


def _explanations(
    found: _Candidates, shares: dict[str, Floats], best: npt.NDArray[np.int64]
) -> list[Explanation | None]:
    lexical_ranks = _ranks(found.lexical.lane, found.docs)
    dense_ranks = _ranks(found.dense.lane if found.dense is not None else EMPTY_LANE, found.docs)
    explanations: list[Explanation | None] = []
    for i in best.tolist():
        has_vector = not np.isnan(found.vectors.cosine[i])
        explanations.append(
            Explanation(
                int(lexical_ranks[i]) or None,
                float(found.bm25[i]),
                int(dense_ranks[i]) or None,
                float(found.vectors.cosine[i]) if has_vector else None,
                float(found.vectors.importance[i]) if has_vector else None,
                {name: float(values[i]) for name, values in shares.items()},
                found.lexical.meant,
            )
        )
    return explanations


def _reported(recipe: Recipe, total: Floats, cosine: npt.NDArray[np.float32]) -> npt.NDArray[np.floating]:
    """The reported scores: cosine for ``dense`` (contract §4), BM25 mapped into (0, 1) for ``lexical`` (§5)."""
    if recipe.fusion is Fusion.DENSE:
        return cosine
    if recipe.fusion is Fusion.LEXICAL:
        return total / (1.0 + total)
    return total
