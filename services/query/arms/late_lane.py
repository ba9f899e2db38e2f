"""Late interaction as an arm of its own: turns that share no word with the query, where the other arms leave room.

``chat.*`` entries are never embedded, so a question put in other words than a turn meets it in no other arm.

Invariant: what the other arms found keeps its score to the last bit, and what is added stands behind it; where they
leave no room nothing is added.
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
    """The turns in scope that are no candidates yet and whose own word pieces answer the query.

    Asked only where there are fewer candidates than hits wanted. Every arm's list is longer than that, so any turn with
    a vector that the query can meet is a candidate already, and what is left here has none.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        query: What late interaction compares; None if it takes no part.
        idf: Of the query's terms in scope.
        candidates: What was found, ascending.
        weights: The recipe's constants: how many of the newest turns are compared, and the least value that counts.

    Returns:
        (m,) intp documents, ascending, and (m,) float64 their values by word pieces.
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
    kept = values >= weights.alone_floor  # NaN, a turn without pieces, is below
    return turns[kept], values[kept]


def shares_behind(shares: Mapping[str, Floats], docs: Docs, added: Docs, values: Floats) -> dict[str, Floats]:
    """The shares of the candidates with those added, which stand behind them.

    An added turn has its value as ``late``, less than 1, and ``place`` brings it a whole unit below the last candidate.

    Args:
        shares: Name → (m,) float64, of the candidates.
        docs: (m,) intp candidates, ascending.
        added: (a,) intp turns, ascending, none of them a candidate.
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
    """The last ``wanted`` rows that are turns, ascending; looks back only as far as it must."""
    span = wanted
    while True:
        first = max(0, len(turns) - span)
        docs = np.flatnonzero(turns[first:])[-wanted:]
        if len(docs) == wanted or not first:
            return docs + first
        span *= 4


def _by_themselves(turns: Docs, long: npt.NDArray[np.bool_]) -> Around:
    """No turn leans on those before it: what is said beside it is no reason to bring it up."""
    none = np.full(len(turns), -1)
    return Around(none, none, none, none, none, long)
