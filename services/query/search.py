"""One search: runs the arms, joins their candidates, applies the recipe, and returns the best k.

Invariant: a pure function of index, scope and query; no ``await`` and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import numpy.typing as npt

from .arms.dense import DenseResult, DenseScores, search_dense
from .arms.lane import EMPTY_LANE, Lane, ranked
from .arms.late_lane import late_lane, shares_behind
from .arms.lexical import NOTHING, LexicalResult, search_lexical
from .arms.wording import PLAIN, Wording
from .hot.index import HotIndex
from .hot.lists import Docs, place_among, union
from .hot.scope import Scope
from .hot.vector_matrix import Vectors
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
from .recipes import Fusion, Recipe

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Query:
    """A prepared query.

    Attributes:
        text: Text of the query, in which speakers' names are searched.
        vector: (d,) float32, L2-normalised, of the index's model; None if there is none.
        late: What late interaction compares; None if it takes no part.
        day: The day of the question, days since 1970-01-01 (UTC), for relative dates; None if not known.
    """

    text: str
    terms: Sequence[int]
    vector: Vectors | None
    late: LateQuery | None = None
    day: int | None = None
    wording: Wording = PLAIN


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


@dataclass(frozen=True, slots=True)
class Found:
    """A hit: document, reported score, cosine (None without a vector) and, on request, the explanation."""

    doc: int
    score: float
    explanation: Explanation | None
    cosine: float | None = None


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
    scoped = index.scoped(scope)
    depth = recipe.depth(k)
    lexical = (
        NOTHING if recipe.fusion is Fusion.DENSE else search_lexical(index, scoped, query.terms, depth, query.wording)
    )
    dense = None
    if recipe.uses_vectors and query.vector is not None:
        dense = search_dense(index, scoped, query.vector, depth)
    dense_docs = dense.lane.docs if dense is not None else EMPTY_LANE.docs
    docs = lane_docs = union(lexical.lane.docs, dense_docs)
    if not len(docs) and recipe.turns is None:
        return []
    beside = None
    if recipe.turns is not None:
        docs, beside = with_next_turns(index, scoped, docs)
    found = _candidates(docs, lexical, dense)
    if beside is not None:
        seen = Seen(docs, place_among(lane_docs, docs), lexical.lane.docs, found.bm25, found.vectors.weighted)
        question = AskedOf(query.text, query.late, lexical.idf, scoped.size, query.day)
        shares = conversation_shares(index, scoped, question, seen, beside, recipe)
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
            docs = union(docs, added)
            found = _candidates(docs, lexical, dense)
    total = sum(shares.values(), np.zeros(len(docs)))
    best = ranked(index.documents, docs, total, k)
    reported = _reported(recipe, total[best], found.vectors.cosine[best])
    why = _explanations(found, shares, best) if explain else [None] * len(best)
    cosines = found.vectors.cosine[best].tolist()
    return [
        Found(int(docs[i]), float(score), one, None if isnan(cosine) else cosine)
        for i, score, one, cosine in zip(best, reported, why, cosines, strict=True)
    ]


def _candidates(docs: Docs, lexical: LexicalResult, dense: DenseResult | None) -> _Candidates:
    nothing = np.full(len(docs), np.nan, np.float32)
    vectors = dense.scores_of(docs) if dense is not None else DenseScores(nothing, nothing)
    return _Candidates(docs, lexical, dense, lexical.scores_of(docs), vectors)


def _z_shares(found: _Candidates, recipe: Recipe) -> dict[str, Floats]:
    lexical, dense = weighted_z(z_scores(found.bm25), z_scores(found.vectors.weighted), recipe.dense_weight)
    return {"lexical": lexical, "dense": dense}


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
