"""Fusion of ranked lists: pure formulas over the candidates of one query.

Invariant: arrays in, arrays out; the same candidates give the same scores in any order.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]

_FLAT: Final = 1e-9
"""Standard deviation, in units of the largest score (or a little more), below which a list says nothing."""


def reciprocal_ranks(ranks: Integers, k: int) -> Floats:
    """``1 / (k + rank)``; 0 where the rank is 0, i.e. the list does not hold the candidate.

    Reciprocal rank fusion sums these over lists (Cormack, Clarke and Büttcher, SIGIR 2009; k = 60 there and in seed 1).

    Args:
        ranks: (m,) ranks from 1.
        k: The constant that flattens the top.
    """
    shares: Floats = np.where(ranks > 0, 1.0 / (k + ranks), 0.0)
    return shares


def ranks_among(docs: Integers, lane: Integers, ranks: Integers) -> npt.NDArray[np.int64]:
    """(m,) rank of each of the ascending candidates ``docs`` in a lane, 0 if not in it.

    Args:
        docs: (m,) candidates.
        lane: (n,) those that the lane has, each a candidate.
        ranks: (n,) their ranks from 1.
    """
    among = np.zeros(len(docs), np.int64)
    among[docs.searchsorted(lane)] = ranks
    return among


def z_scores(scores: npt.NDArray[np.floating]) -> Floats:
    """``(x - mean) / standard deviation`` over the candidates that have a score; NaN stays NaN.

    All zeros if the scores are (nearly) equal. Invariant under scaling, so a uniform factor changes nothing.

    Args:
        scores: (m,) scores, NaN where a candidate has none.
    """
    values = scores.astype(np.float64)
    known = values
    total = float(np.add.reduce(values))
    if math.isnan(total):
        known = values[~np.isnan(values)]
        total = float(np.add.reduce(known))
    n = len(known)
    if not n:
        return values
    mean = total / n  # the steps of mean() and std(), which spend most of their time on options
    centred = known - mean
    deviation = math.sqrt(np.dot(centred, centred) / n)
    if deviation <= _FLAT * (abs(mean) + math.sqrt(n) * deviation):  # which no score exceeds
        return np.where(np.isnan(values), np.nan, 0.0)
    z: Floats = (centred if n == len(values) else values - mean) / deviation
    return z


def weighted_z(lexical: Floats, dense: Floats, weight: float) -> tuple[Floats, Floats]:
    """The two arms' shares of a z-score fusion: ``(1 - w) z(lexical)`` and ``w z(dense)``.

    ``w = weight * c``, where c is the share of candidates that have a vector: an arm counts as far as it can judge, and
    with no vectors at all the fusion is the lexical arm at full weight. A candidate without a vector gets the mean, 0.
    Evidence (recall@10, development conversations, 0 / 10 / 30 / 50 / 90 / 100 % of entries with a vector, three draws):
    this .720 .729 .741 .755 .805 .815; mean without c .728 .724 .712 .741 .800 .815; the lowest dense z seen, without c,
    .543 at 10 %, .549 at 50 %: it pushes whatever is not embedded yet below everything that is.

    Args:
        lexical: (m,) z-scores.
        dense: (m,) z-scores, NaN where there is no vector.
        weight: Weight of the dense arm when every candidate has a vector.
    """
    known = ~np.isnan(dense)
    w = weight * (np.count_nonzero(known) / len(known)) if len(dense) else 0.0
    return (1.0 - w) * lexical, w * np.where(known, dense, 0.0)


def neighbour_values(scores: Floats, neighbour: Integers) -> Floats:
    """The score of each candidate's neighbour.

    Args:
        scores: (m,) scores of the candidates.
        neighbour: (m,) index of the neighbour among the candidates; -1 if there is none, -2 if there is one that no arm
            found: it counts as the lowest candidate (recall@10 .815 against .794 for 0).
    """
    if not len(scores):
        return np.zeros(0)
    extended = np.concatenate((scores, (np.minimum.reduce(scores), 0.0)))  # read from the end: -1 is 0.0, -2 the lowest
    values: Floats = extended[neighbour]
    return values


def session_values(scores: Floats, session: Integers, best: int) -> Floats:
    """Of each candidate's session, the mean of its ``best`` highest scores (of fewer, if it has fewer).

    Args:
        scores: (m,) scores of the candidates.
        session: (m,) session of each; negative for none, which gives 0.
        best: How many of a session's scores count.
    """
    if not len(scores):
        return np.zeros(0)
    order = np.lexsort((-scores, session))
    ordered = session[order]
    bounds = np.ones(len(order) + 1, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=bounds[1:-1])
    begins = bounds.nonzero()[0]
    first = begins[:-1]
    size = begins[1:] - first
    counted = np.minimum(size, best)
    ranked = scores[order]
    sums = ranked[first]
    for rank in range(1, best):
        longer = (size > rank).nonzero()[0]
        sums[longer] += ranked[first[longer] + rank]
    means = sums / counted
    means[ordered[first] < 0] = 0.0
    values = np.empty(len(scores))
    values[order] = means.repeat(size)
    return values
