"""Adds turns that share no word with the query, if the other arms found fewer candidates than requested.

``chat.*`` entries have no vectors, so no other arm can find such a turn. Invariant: scores and order of the other
candidates do not change, and added turns rank below them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..hot.index import HotIndex
from ..hot.lists import Docs
from ..hot.scoped import ScopedDocuments
from ..recipes import ConversationWeights
from .late import Around, LateQuery, late_values

Floats = npt.NDArray[np.float64]


def late_lane(
    index: HotIndex,
    scoped: ScopedDocuments,
    query: LateQuery | None,
    idf: Mapping[int, float],
    candidates: Docs,
    weights: ConversationWeights,
) -> tuple[Docs, Floats]:
    """Turns in scope that are not candidates and whose own word pieces match the query.

    Called only if there are fewer candidates than requested hits. Each lane is longer than that, so every turn with a
    comparable vector is already a candidate.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        query: Input of late interaction; None if it is not used.
        idf: Of the query's terms in scope.
        candidates: The candidates, ascending.
        weights: The recipe's constants: number of newest turns to compare, and smallest value that counts.

    Returns:
        (m,) intp documents, ascending, and (m,) float64 values by word pieces.
    """
    turns = _newest(scoped.turns, weights.alone_turns + len(candidates))
    turns = turns[np.isin(turns, candidates, assume_unique=True, invert=True)][-weights.alone_turns :]
    if query is None or query.table is None or not len(turns):
        return turns[:0], np.empty(0)
    values, _ = late_values(
        index,
        replace(query, tokens=None),
        idf,
        scoped.size,
        turns,
        _by_themselves(turns, index.documents.words[turns] > weights.max_words),
        weights,
    )
    if values is None:
        return turns[:0], np.empty(0)
    kept = values >= weights.alone_floor  # NaN (a turn without pieces) compares as below
    return turns[kept], values[kept]


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
    order = np.argsort(np.concatenate((docs, added)), kind="stable")
    nothing = np.zeros(len(added))
    joined = {name: np.concatenate((found, nothing))[order] for name, found in shares.items()}
    extra = {"late": values}
    if len(docs):
        lowest = sum(shares.values(), np.zeros(len(docs))).min()
        extra["place"] = np.full(len(added), lowest - 1.0)
    for name, own in extra.items():
        joined[name] = joined.get(name, np.zeros(len(order))) + np.concatenate((np.zeros(len(docs)), own))[order]
    return joined


def _newest(turns: npt.NDArray[np.bool_], wanted: int) -> Docs:
    """The last ``wanted`` rows that are turns, ascending; reads backwards only as far as needed."""
    span = wanted
    while True:
        first = max(0, len(turns) - span)
        docs = np.flatnonzero(turns[first:])[-wanted:]
        if len(docs) == wanted or not first:
            return docs + first
        span *= 4


def _by_themselves(turns: Docs, long: npt.NDArray[np.bool_]) -> Around:
    """The turns without their previous turns, since only a turn's own words may add it."""
    none = np.full(len(turns), -1)
    return Around(none, none, none, none, none, long)
