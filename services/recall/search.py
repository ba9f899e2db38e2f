"""One search: runs the arms, joins their candidates, applies the recipe, and returns the best k.

Invariant: a pure function of index, scope and query; no ``await`` and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.core.timestamps import DAY_MS
from ...schemas.recall.operations import ArmShare, HitExplanation
from ...schemas.recall.questions import QueryKind
from ...schemas.text.dates import Days
from ..index.arrays import Docs, place_among, union
from ..index.entry_index import HotIndex
from ..index.scope import RecallScope
from ..index.scoped import ScopedDocuments
from ..index.vectors import NO_ROW
from .arms import (
    EMPTY_LANE,
    DenseResult,
    DenseScores,
    Lane,
    LexicalResult,
    ranked,
    search_dense,
    search_lexical,
    words_in_scope,
)
from .asking import Query
from .conversational import SeenCandidates, conversation_shares, features_of, rule_shares, with_next_turns
from .fusion import ranks_among, reciprocal_ranks, weighted_z, z_scores
from .late import search_late
from .recipes import Fusion, Recipe, knows_script

# Puts the latest of similar hits first, because the last statement counts.


ALIKE: Final[dict[str, float]] = {"all-MiniLM-L6-v2": 0.55}
"""Model → cosine from which two entries say much the same. Situations about preferences that changed: the newest relevant
line stands above the older ones in .48 of 52 instead of .40, and the first relevant one no lower (at .5: .58, MRR -.07)."""


def latest_first(index: HotIndex, docs: Docs, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The order of hits with similar ones by their day, newest first; unchanged under a model without constants.

    Args:
        index: The workspace's index.
        docs: (m,) intp candidates.
        order: (n,) int64 places of the hits among them, best first.
    """
    matrix = index.vectors
    alike = ALIKE.get(index.model or "")
    if matrix is None or alike is None or len(order) < 2:
        return order
    rows = matrix.rows_of(docs[order])
    with_vector = (rows != NO_ROW).nonzero()[0]
    vectors = matrix.vectors[rows[with_vector]]
    group = np.arange(len(order))
    for at, beside in zip(*np.nonzero(np.triu(vectors @ vectors.T >= alike, 1)), strict=True):
        first, second = group[with_vector[at]], group[with_vector[beside]]
        group[group == max(first, second)] = min(first, second)
    day = index.documents.ts_ms[docs[order]] // DAY_MS
    places = np.argsort(group, kind="stable")  # by group, in order
    newest = np.lexsort((-day, group))
    result = order.copy()
    result[places] = order[newest]
    return result


Floats = npt.NDArray[np.float64]

JUDGED: Final = 10
"""Hits by which an answer as a whole is judged, however few are wanted."""


PARAPHRASED: Final = 0.25
"""Share of the weight of a question's words that the best text holds, below which it is taken to be a paraphrase: the last
of the first ten hits among notes are then those nearest in meaning (docs/adr/0025)."""
RANKED_FIRST: Final = 7
"""Hits that keep the order of the recipe in that case; 5 and 3 are within .003."""


def with_nearest(order: npt.NDArray[np.int64], cosine: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """The order of hits with the nearest candidates behind the first ``RANKED_FIRST``, up to ``JUDGED`` hits.

    Args:
        order: (n,) int64 places of the hits among the candidates, best first.
        cosine: (m,) float32 of the candidates; NaN without a vector.
    """
    first = order[:RANKED_FIRST]
    near = np.nan_to_num(cosine, nan=-np.inf)
    near[first] = -np.inf
    nearest = np.argsort(-near, kind="stable")[: JUDGED - len(first)]
    first = np.concatenate((first, nearest[near[nearest] > -np.inf]))
    return np.concatenate((first, order[~np.isin(order, first)]))[: len(order)]


class RankedHit(NamedTuple):
    """A hit: document, reported score, cosine (None without a vector) and, on request, the explanation."""

    doc: int
    score: float
    explanation: HitExplanation | None
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """One search, with the values by which its hits are judged.

    Attributes:
        hits: The best ``k``, best first.
        docs: (m,) intp candidates, ascending.
        order: (n,) int64 place among the candidates of the hits, and of those that follow as far as ``JUDGED``.
        shares: Name → (m,) float64: what each arm and rule adds to it.
        static: (m,) float64 late interaction by word pieces; NaN where there is none.
        context: (m,) float64 late interaction in context, likewise.
        cosine: (m,) float32 cosine; NaN without a vector.
        lexical: The result of the lexical arm.
        dense: The result of the dense arm; None if it did not run.
        scoped: The rows in scope.
    """

    hits: list[RankedHit]
    docs: Docs
    order: npt.NDArray[np.int64]
    shares: Mapping[str, Floats]
    static: Floats
    context: Floats
    cosine: npt.NDArray[np.float32]
    lexical: LexicalResult
    dense: DenseResult | None
    scoped: ScopedDocuments


def search(
    index: HotIndex, scope: RecallScope, query: Query, recipe: Recipe, k: int, *, explain: bool = False
) -> list[RankedHit]:
    """The best ``k`` entries in scope: score descending, then newer ts, then id."""
    return searched(index, scope, query, recipe, k, explain=explain).hits


def searched(
    index: HotIndex, scope: RecallScope, query: Query, recipe: Recipe, k: int, *, explain: bool = False
) -> Searched:
    """The best ``k`` entries in scope, with the values by which they are judged.

    If one arm has no input (no vector, only stop words), the other alone decides.
    """
    if recipe.rules is not None:
        unread = not knows_script(index.model, unspaced=query.unspaced)
        recipe = recipe.for_query(query.told, len(query.terms), unread=unread, sums_up=query.sums_up)
    scoped = index.scoped(scope)
    depth = recipe.depth(k)
    speaker = None
    if recipe.rules is not None or recipe.turns is not None:
        speaker = index.names.speaker_named(query.tokens, scoped.speakers)

    if recipe.fusion is Fusion.DENSE:
        lexical = words_in_scope(index, scoped, query.terms)
    else:
        lexical = search_lexical(index, scoped, query.terms, depth, query.wording)
    dense = None
    paraphrased = False
    if recipe.uses_vectors and query.vector is not None:
        if recipe.covered and (coverage := lexical.coverage(query.terms, scoped.size)) < recipe.covered:
            # no text holds much of the query: its words say little, and their weight goes to meaning
            share = coverage / recipe.covered
            if query.asks and 2 * scoped.turn_count < scoped.size:  # a stray word misleads more among notes
                share *= share
                paraphrased = coverage < PARAPHRASED
            recipe = replace(recipe, dense_weight=1.0 - (1.0 - recipe.dense_weight) * share)
        usual = query.queries if recipe.fusion in (Fusion.Z_SCORE, Fusion.CONVERSATION) else None
        dense = search_dense(index, scoped, query.vector, depth, usual)
    lanes = lexical.lane, dense.lane if dense is not None else EMPTY_LANE
    docs = candidates = union(lanes[0].docs, lanes[1].docs)
    if recipe.in_period and query.of_turns.days:
        best = _best_in(index, scoped, query.of_turns.days, lexical, dense, recipe.in_period)
        docs = candidates = union(candidates, best)
    late = None
    if recipe.turns is not None:
        docs, around = with_next_turns(index, scoped, candidates, recipe.turns.max_words)
        too_few = docs if len(docs) < k else None
        late = search_late(index, scoped, query.late, lexical.idf, around, recipe.turns, too_few)

    bm25, vectors = _scores(docs, lexical, dense)
    static = context = np.full(len(docs), np.nan)
    if late is not None:
        seen = SeenCandidates(docs, place_among(candidates, docs), lexical.lane.docs, bm25, vectors.weighted)
        shares = conversation_shares(index, scoped, seen, around, late, query.of_turns, speaker, recipe)
        static, context = (_of_turns(values, scoped.turns[docs]) for values in (late.static, late.context))
        if len(late.added):
            shares = shares_behind(shares, docs, late.added, late.values)
            static = _widened(static, docs, late.added, late.values)
            context = _widened(context, docs, late.added, np.full(len(late.added), np.nan))
            docs = union(docs, late.added)
            bm25, vectors = _scores(docs, lexical, dense)
    elif recipe.fusion is Fusion.Z_SCORE:
        of_words, of_meaning = weighted_z(z_scores(bm25), z_scores(vectors.weighted), recipe.dense_weight)
        shares = {"lexical": of_words, "dense": of_meaning}
        if recipe.rules is not None:
            shares |= rule_shares(of_words + of_meaning, features_of(index, scoped, speaker, docs), recipe.rules)
    elif recipe.fusion is Fusion.RECIPROCAL_RANK:
        names = ("lexical", "dense")
        ranks = (ranks_among(docs, lane.docs, np.arange(1, len(lane.docs) + 1)) for lane in lanes)
        shares = {name: reciprocal_ranks(own, recipe.rank_constant) for name, own in zip(names, ranks, strict=True)}
    elif recipe.fusion is Fusion.DENSE:
        shares = {"dense": vectors.weighted.astype(np.float64)}
    else:
        shares = {"lexical": bm25.astype(np.float64)}

    total = sum(shares.values(), np.zeros(len(docs)))
    order = ranked(index.documents, docs, total, max(k, JUDGED))
    if query.told is not QueryKind.ASKS and recipe.rules is not None:
        first = min(k, JUDGED)
        order = np.concatenate((latest_first(index, docs, order[:first]), order[first:]))
    if paraphrased:
        order = with_nearest(order, vectors.cosine)
    best = order[:k]
    reported: npt.NDArray[np.floating] = total[best]
    if recipe.fusion is Fusion.DENSE:  # contract §4
        reported = vectors.cosine[best]
    elif recipe.fusion is Fusion.LEXICAL:  # into (0, 1), contract §5
        reported = reported / (1.0 + reported)
    hits = [
        RankedHit(doc, score, None, None if isnan(cosine) else cosine)
        for doc, score, cosine in zip(
            docs[best].tolist(), reported.tolist(), vectors.cosine[best].tolist(), strict=True
        )
    ]
    if explain:
        why = _explanations(docs, best, shares, lexical, lanes, bm25, vectors)
        hits = [hit._replace(explanation=own) for hit, own in zip(hits, why, strict=True)]
    return Searched(hits, docs, order, shares, static, context, vectors.cosine, lexical, dense, scoped)


def _best_in(
    index: HotIndex,
    scoped: ScopedDocuments,
    days: Sequence[Days],
    lexical: LexicalResult,
    dense: DenseResult | None,
    wanted: int,
) -> Docs:
    """The best ``wanted`` entries of each arm among those of some periods, ascending: a date finds entries by itself."""
    own = index.documents.ts_ms[: scoped.count]
    inside = np.zeros(scoped.count, bool)
    for period in days:
        inside |= (own >= period.first * DAY_MS) & (own < (period.last + 1) * DAY_MS)
    if scoped.mask is not None:
        inside &= scoped.mask
    docs = inside.nonzero()[0]
    if len(docs) <= wanted:
        return docs
    words = lexical.scores_of(docs)
    chosen = [docs[ranked(index.documents, docs, words, wanted)]]
    if dense is not None and len(docs) <= MOST_IN_PERIOD:
        near = np.nan_to_num(dense.scores_of(docs).weighted, nan=-1.0)
        chosen.append(docs[ranked(index.documents, docs, near, wanted)])
    best: Docs = np.unique(np.concatenate(chosen))
    return best


MOST_IN_PERIOD: Final = 1_024
"""Entries of a period whose cosines are compared (some .5 ms); a longer period says little about an entry."""


def _scores(
    docs: Docs, lexical: LexicalResult, dense: DenseResult | None
) -> tuple[npt.NDArray[np.float32], DenseScores]:
    """BM25, and cosine and importance, of the candidates."""
    nothing = np.full(len(docs), np.nan, np.float32)
    return lexical.scores_of(docs), DenseScores(nothing, nothing) if dense is None else dense.scores_of(docs)


def _of_turns(values: Floats | None, is_turn: npt.NDArray[np.bool_]) -> Floats:
    """Values of the candidates that are turns, NaN for the others."""
    every = np.full(len(is_turn), np.nan)
    if values is not None:
        every[is_turn] = values
    return every


def _widened(values: Floats, docs: Docs, added: Docs, own: Floats) -> Floats:
    """Values of the candidates and of those added, in ascending order of document."""
    every: Floats = np.concatenate((values, own))[np.argsort(np.concatenate((docs, added)), kind="stable")]
    return every


def shares_behind(shares: Mapping[str, Floats], docs: Docs, added: Docs, values: Floats) -> dict[str, Floats]:
    """The shares of the candidates and of the added turns, which rank below them.

    An added turn's value (below 1) is its share ``late``; its share ``place`` puts it one unit below the last
    candidate.

    Args:
        shares: Name → (m,) float64, of the candidates.
        docs: (m,) intp candidates, ascending.
        added: (a,) intp turns, ascending, not among the candidates.
        values: (a,) float64 by word pieces.

    Returns:
        Name → (m + a,) float64, in ascending order of document.
    """
    nothing = np.zeros(len(added))
    extra = {"late": values}
    if len(docs):
        lowest = sum(shares.values(), np.zeros(len(docs))).min()
        extra["place"] = np.full(len(added), lowest - 1.0)
    none = np.zeros(len(docs))
    return {
        name: _widened(shares.get(name, none), docs, added, extra.get(name, nothing)) for name in {**shares, **extra}
    }


def _explanations(
    docs: Docs,
    best: npt.NDArray[np.int64],
    shares: Mapping[str, Floats],
    lexical: LexicalResult,
    lanes: tuple[Lane, Lane],
    bm25: npt.NDArray[np.float32],
    vectors: DenseScores,
) -> list[HitExplanation]:
    lexical_ranks, dense_ranks = (ranks_among(docs, lane.docs, np.arange(1, len(lane.docs) + 1)) for lane in lanes)
    meant = dict(lexical.meant)
    explanations: list[HitExplanation] = []
    for i in best.tolist():
        has_vector = not np.isnan(vectors.cosine[i])
        cosine = float(vectors.cosine[i]) if has_vector else None
        explanations.append(
            HitExplanation(
                lexical=ArmShare(rank=int(lexical_ranks[i]) or None, score=float(bm25[i])),
                dense=ArmShare(rank=int(dense_ranks[i]) or None, score=cosine),
                importance=float(vectors.importance[i]) if has_vector else None,
                shares={name: float(values[i]) for name, values in shares.items()},
                meant=meant,
            )
        )
    return explanations
