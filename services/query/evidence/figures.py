"""The figures by which hits and answers are judged, from values that a search has computed.

Names of people are not counted: they say whom a question is about, and occur in every scope.

Few hits are judged, so these are plain numbers: for ten, an operation of numpy costs more than a loop.

Invariant: figures use only the query's scope and, of the index, only the rows of the judged hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log1p
from typing import Final

import numpy as np
import numpy.typing as npt

from ..arms.lexical import LexicalResult, idf_of
from ..hot.index import HotIndex
from ..hot.lists import Docs
from ..hot.sessions import neighbours
from ..search import JUDGED, Query, Searched

Floats = npt.NDArray[np.float64]

BEST: Final = 3
"""Hits over which an answer's evidence is averaged: one turn alone meets many a question by chance."""
SHARES: Final = ("lexical", "previous", "answer", "first_person")
"""Shares of the recipe that say more of a hit than its score does."""
BY_BEST: Final = ("context", "static", "cosine", "words", "words_near")
"""Figures of an answer that are the mean of its best hits'."""
LEAST_VECTORS: Final = 30
"""Least number of vectors in scope whose mean and deviation describe a model."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of n hits and of their answer.

    Attributes:
        hits: Name → one value a hit, NaN where it has none.
        answer: Name → the value, NaN where there is none.
        shared: Of each hit, which of ``terms`` it holds: their places.
        terms: The query's terms, names of people left out.
    """

    hits: Mapping[str, Sequence[float]]
    answer: Mapping[str, float]
    shared: Sequence[set[int]]
    terms: tuple[int, ...]


def figures_of(index: HotIndex, query: Query, found: Searched) -> Figures:
    """The figures of the hits in ``found.order``."""
    order = found.order
    docs = found.docs[order]
    count = len(docs)
    terms, weights = _weights(index, query, found)
    previous, _ = neighbours(index.order, index.documents, found.scoped.count, docs, found.scoped.mask)
    either = _shared(found.lexical, terms, np.concatenate((docs, previous)))
    shared, before = either[:count], either[count:]
    whole = sum(weights) or 1.0
    total = found.total[order].tolist()
    best = total[0] if count else 0.0
    behind = [best - score for score in total]
    lead = behind[1] if count > 1 else 0.0
    cosine = found.cosine[order].tolist()
    mean, deviation = _likeness(found)
    asks_when = "time" in found.shares
    none = [0.0] * count
    hits = {
        "score": total,
        "behind": behind,
        "ahead": [score - following for score, following in pairwise(total)] + none[:1],
        "lead": [lead] * count,
        "when": behind if asks_when else none,
        "place": [log1p(place) for place in range(count)],
        "context": found.context[order].tolist(),
        "static": found.static[order].tolist(),
        "cosine": cosine,
        "likeness": [(value - mean) / deviation for value in cosine],
        "words": [sum([weights[at] for at in held]) / whole for held in shared],
        "words_near": [sum([weights[at] for at in held]) / whole for held in map(set.union, shared, before)],
        "length": [log1p(words) for words in index.documents.words[docs].tolist()],
    }
    for name in SHARES:
        hits[name] = found.shares[name][order].tolist() if name in found.shares else none
    heard = {*found.lexical.idf, *found.lexical.stands_for.values()}
    unheard = sum(weight for term, weight in zip(terms, weights, strict=True) if term not in heard)
    answer = {name: _best(hits[name][:JUDGED]) for name in BY_BEST}
    answer |= {
        "score": best,
        "lead": lead,
        "background": _mean(found.context),
        "unheard": unheard / whole,
        "likeness": (answer["cosine"] - mean) / deviation,
        "many": log1p(len(terms)),
    }
    return Figures(hits, answer, shared, terms)


def _weights(index: HotIndex, query: Query, found: Searched) -> tuple[tuple[int, ...], list[float]]:
    """The query's terms that are not names of speakers (all terms, if every one is a name), and their idf in scope."""
    names = index.names.name_words(query.words.values(), found.scoped.speakers)
    telling = tuple(term for term in query.terms if query.words.get(term) not in names) or tuple(query.terms)
    unheard = idf_of(0, found.scoped.size)
    return telling, [found.lexical.idf.get(term, unheard) for term in telling]


def _shared(lexical: LexicalResult, terms: tuple[int, ...], docs: Docs) -> list[set[int]]:
    """Of each document, the places of the terms that it holds."""
    held: list[set[int]] = [set() for _ in docs]
    row = {term: at for at, term in enumerate(terms)}
    for part in lexical.parts:
        at = row.get(lexical.stands_for.get(part.term, part.term))
        if at is not None:
            matches = part.docs.take(part.docs.searchsorted(docs), mode="clip") == docs
            for place in matches.nonzero()[0].tolist():
                held[place].add(at)
    return held


def _likeness(found: Searched) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of all vectors in scope."""
    every = found.dense.in_scope if found.dense is not None else None
    if every is None or len(every) < LEAST_VECTORS:
        return np.nan, np.nan
    mean = float(np.add.reduce(every)) / len(every)
    spread = (
        float(every.dot(every)) / len(every) - mean * mean
    )  # two passes without a copy: thousands of rows are common
    return mean, spread**0.5 if spread > 0 else np.nan


def _best(values: Sequence[float]) -> float:
    known = sorted([value for value in values if value == value])[-BEST:]  # NaN is not itself
    return sum(known) / len(known) if known else np.nan


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.add.reduce(known)) / len(known) if len(known) else np.nan
