"""The figures by which hits and answers are judged, out of what a search has computed anyway.

Names of people are left out of the words that count: they say of whom a question asks, and meet something in every scope.

Invariant: figures are seen through the query's scope; of the index nothing is read but what concerns the hits judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..arms.lexical import LexicalResult, idf_of
from ..hot.documents import ABSENT
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
"""Vectors in scope from which their mean and deviation say what is usual under a model."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of n hits and of their answer.

    Attributes:
        hits: Name → (n,) float64, NaN where a hit has none.
        answer: Name → the value, NaN where there is none.
        shared: (t, n) bool: which of the query's terms each hit holds.
        terms: The t terms, names of people left out.
    """

    hits: dict[str, Floats]
    answer: dict[str, float]
    shared: npt.NDArray[np.bool_]
    terms: tuple[int, ...]


def figures_of(index: HotIndex, query: Query, found: Searched) -> Figures:
    """The figures of the hits in ``found.order``."""
    order, docs = found.order, found.docs[found.order]
    terms, weights = _weights(index, query, found)
    count = len(docs)
    either = _shared(found.lexical, terms, np.concatenate((docs, _previous(index, found, docs))))
    shared = either[:, :count]
    near = shared | either[:, count:]
    whole = float(weights.sum()) or 1.0
    total = found.total[order]
    best = float(total[0]) if len(total) else 0.0
    cosine = found.cosine[order].astype(np.float64)
    hits = {
        "score": total,
        "behind": best - total,
        "place": np.log1p(np.arange(count)),
        "context": found.context[order],
        "static": found.static[order],
        "cosine": cosine,
        "words": weights @ shared / whole,
        "words_near": weights @ near / whole,
        "length": np.log1p(index.documents.words[docs].astype(np.float64)),
    }
    heard = {*found.lexical.idf, *found.lexical.stands_for.values()}
    known = np.array([term in heard for term in terms], bool)
    first = {name: _best(hits[name][:JUDGED]) for name in BY_BEST}
    mean, deviation = _likeness(found)
    hits["likeness"] = (cosine - mean) / deviation
    ahead = np.zeros(count)
    np.subtract(total[:-1], total[1:], out=ahead[:-1])
    hits |= {"ahead": ahead, "when": hits["behind"] * ("time" in found.shares)}
    answer = {
        **first,
        "score": best,
        "lead": float(best - total[1]) if len(total) > 1 else 0.0,
        "background": _mean(found.context),
        "unheard": float(weights[~known].sum()) / whole,
        "likeness": (first["cosine"] - mean) / deviation,
        "many": float(np.log1p(len(terms))),
    }
    hits["lead"] = np.full(count, answer["lead"])
    hits |= {name: found.shares[name][order] if name in found.shares else np.zeros(count) for name in SHARES}
    return Figures(hits, answer, shared, terms)


def _weights(index: HotIndex, query: Query, found: Searched) -> tuple[tuple[int, ...], Floats]:
    """The query's terms that are not names of speakers (all terms, if every one is a name), and their idf in scope."""
    names = index.names.name_words(query.words.values(), found.scoped.speakers)
    telling = tuple(term for term in query.terms if query.words.get(term) not in names) or tuple(query.terms)
    unheard = idf_of(0, found.scoped.size)
    return telling, np.array([found.lexical.idf.get(term, unheard) for term in telling], np.float64)


def _shared(lexical: LexicalResult, terms: tuple[int, ...], docs: Docs) -> npt.NDArray[np.bool_]:
    held = np.zeros((len(terms), len(docs)), bool)
    row = {term: at for at, term in enumerate(terms)}
    for part in lexical.parts:
        at = row.get(lexical.stands_for.get(part.term, part.term))
        if at is not None:
            held[at] |= part.docs.take(part.docs.searchsorted(docs), mode="clip") == docs
    return held


def _previous(index: HotIndex, found: Searched, docs: Docs) -> Docs:
    """The entry before each in its session, in scope; itself where there is none."""
    previous, _ = neighbours(index.order, index.documents, found.scoped.count, docs, found.scoped.mask)
    return np.where(previous == ABSENT, docs, previous)


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


def _best(values: Floats) -> float:
    known = sorted(value for value in values.tolist() if value == value)[-BEST:]  # NaN is not itself
    return sum(known) / len(known) if known else np.nan


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.add.reduce(known)) / len(known) if len(known) else np.nan
