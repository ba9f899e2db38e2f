"""The figures by which each hit is judged, from values that a search has computed.

Each figure means the same in a memory of five texts and of five million, under every embedding model: words weigh by how
rare they are in general (``word_rarity``), cosines count by the model's calibration. In turns of conversations, names of
speakers in scope are not counted as words, because they say whom a question is about and occur everywhere; a note about a
person holds the name as it holds other words.

Few hits are judged, so these are plain numbers: for ten, an operation of numpy costs more than a loop.

Invariant: figures use only the query's scope and, of the index, only the rows of the judged hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log1p
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.rules.prompts import holds_kind
from ....schemas.rules.word_rarity import weight_of
from ..arms.lexical import LexicalResult
from ..asking import Query
from ..hot.index import HotIndex
from ..hot.lists import Docs
from ..hot.sessions import neighbours
from ..hot.vector_matrix import NO_ROW
from ..search import Searched
from .calibration import Calibration

Floats = npt.NDArray[np.float64]

LEAST_VECTORS: Final = 30
"""Least number of vectors in scope that describe a model which was not measured yet."""
UNMEASURED_SLOPE: Final = 1.1
UNMEASURED_BIAS: Final = -5.5
"""Log odds by meaning of a model that was not measured yet, from the standard deviations above the mean cosine in scope; the
median of MiniLM and multilingual-e5-small on the reference texts."""
LOWEST_MEANING: Final = -6.0
HIGHEST_MEANING: Final = 12.0
"""Bounds of the log odds by meaning."""
UNRELATED_BEST: Final = 2.0
"""Standard deviations above the mean that the best of some dozen unrelated texts reaches by chance: a hit that is clear of
all others is compared with this at least, so that it stands out no more in a small memory than in a large one."""
ALIKE: Final = 5.0
"""Standard deviations above the cosine of unrelated texts from which two hits say nearly the same: neither makes the other
doubtful. MiniLM: cosine .52, multilingual-e5-small: .88."""
CLEAR: Final = 1.0
BEHIND: Final = -0.5
"""Bounds of the margin, in standard deviations: beyond them, it only says how much a memory is about one topic."""
MOST_TERMS: Final = 10
_NO_NAMES: Final = frozenset[int]()
ALL_PLACES: Final = 2
"""The place of a hit counts at most as the third where many entries answer together ("how much did I spend in all")."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of n hits.

    Attributes:
        hits: Name → one value a hit, NaN where it has none.
        turns: Whether each is a turn of a conversation.
        shared: Of each hit, which of ``terms`` it holds: their places.
        terms: The query's terms. Turns of conversations hold no names of speakers: who speaks is judged by itself.
        words: Of each term.
        weights: Of each term.
        uncertain: Whether each has a cosine whose meaning is not known: the model is not measured, and few vectors are in
            scope.
    """

    hits: Mapping[str, Sequence[float]]
    turns: Sequence[bool]
    shared: Sequence[set[int]]
    terms: tuple[int, ...]
    words: Sequence[str]
    weights: Sequence[float]
    uncertain: Sequence[bool]


def figures_of(
    index: HotIndex,
    query: Query,
    found: Searched,
    texts: Sequence[str | None],
    calibration: Calibration | None,
    echoes: Sequence[bool] = (),
) -> Figures:
    """The figures of the hits.

    Args:
        index: The workspace's index.
        query: The query.
        found: What was found.
        texts: The text of each hit; None for one that is gone.
        calibration: Of the vectors' model; None if it is not measured yet.
        echoes: Whether each hit only repeats the query; no other hit is compared with such a one.
    """
    count = len(texts)
    order = found.order
    docs = found.docs[order[:count]]
    terms = tuple(query.terms)
    words_of_terms = [query.words.get(term, "") for term in terms]
    said = index.names.name_words(words_of_terms, found.scoped.speakers)
    names = frozenset(at for at, word in enumerate(words_of_terms) if word in said)
    if len(names) == len(terms):
        names = _NO_NAMES
    frequency = found.lexical.frequencies
    size = found.scoped.size
    weights = [weight_of(word, frequency.get(term, 0), size) for word, term in zip(words_of_terms, terms, strict=True)]
    previous, _ = neighbours(index.order, index.documents, found.scoped.count, docs, found.scoped.mask)
    either = _shared(found.lexical, terms, np.concatenate((docs, previous)))
    turns = found.scoped.turns[docs].tolist()
    total, of_names = sum(weights), sum([weights[at] for at in names])
    left_out = [names if turn else _NO_NAMES for turn in turns]
    whole = [(total - of_names if turn else total) or 1.0 for turn in turns]
    shared = [held - out for held, out in zip(either[:count], left_out, strict=True)]
    near = [held | (before - out) for held, before, out in zip(shared, either[count:], left_out, strict=True)]
    words = [sum([weights[at] for at in held]) / of for held, of in zip(shared, whole, strict=True)]
    words_near = [sum([weights[at] for at in held]) / of for held, of in zip(near, whole, strict=True)]
    cosines = found.cosine[order].astype(np.float64)
    if calibration is None or query.vector is None or index.vectors is None:
        distances = _in_scope(found, cosines)
        means = UNMEASURED_SLOPE * distances[:count] + UNMEASURED_BIAS
    else:
        rows = index.vectors.rows_of(docs)
        have = (rows != NO_ROW).nonzero()[0]
        means = np.full(count, np.nan)
        if len(have):
            means[have] = calibration.meaning(cosines[have], query.vector, index.vectors.vectors[rows[have]])
        distances = calibration.distance(cosines)
    meaning: list[float] = np.clip(means, LOWEST_MEANING, HIGHEST_MEANING).tolist()
    only_turns = all(turns)  # whose rows weigh neither the kind of answer nor the margin
    kind = None if only_turns else query.kind
    asked = frozenset(query.tokens) if kind is not None else frozenset[str]()
    holds = [None if kind is None or text is None else holds_kind(kind, text, asked) for text in texts]
    most = ALL_PLACES if query.asks_for_all else count
    hits = {
        "meaning": meaning,
        "words": words,
        "words_squared": [value * value for value in words],
        "meaning_words": [one * value for one, value in zip(meaning, words, strict=True)],
        "words_near": words_near,
        "near_squared": [value * value for value in words_near],
        "meaning_near": [one * value for one, value in zip(meaning, words_near, strict=True)],
        "margin": [0.0] * count
        if only_turns
        else _margins(distances, _alike(index, found, calibration), echoes)[:count],
        "lacks_kind": [float(has is False) for has in holds],
        "has_kind": [float(has is True) for has in holds],
        "terms": [float(min(len(terms) - len(out), MOST_TERMS)) for out in left_out],
        "place": [log1p(min(place, most)) for place in range(count)],
        "context": found.context[order[:count]].tolist(),
        "static": found.static[order[:count]].tolist(),
    }
    uncertain = [
        isnan(one) and cosine > 0 for one, cosine in zip(meaning, found.cosine[order[:count]].tolist(), strict=True)
    ]
    return Figures(hits, turns, shared, terms, words_of_terms, weights, uncertain)


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


def _in_scope(found: Searched, cosines: Floats) -> Floats:
    """Standard deviations above the mean cosine of the vectors in scope; NaN if there are few."""
    every = found.dense.in_scope if found.dense is not None else None
    if every is None or len(every) < LEAST_VECTORS:
        return np.full(len(cosines), np.nan)
    mean = float(np.add.reduce(every)) / len(every)
    spread = (
        float(every.dot(every)) / len(every) - mean * mean
    )  # two passes without a copy: thousands of rows are common
    distance: Floats = (cosines - mean) / (spread**0.5 if spread > 0 else np.nan)
    return distance


def _alike(index: HotIndex, found: Searched, calibration: Calibration | None) -> npt.NDArray[np.bool_]:
    """(n, n) bool: which of the judged hits say nearly the same, such as two statements of one fact."""
    docs = found.docs[found.order]
    alike = np.eye(len(docs), dtype=bool)
    if calibration is None or index.vectors is None:
        return alike
    rows = index.vectors.rows_of(docs)
    have = (rows != NO_ROW).nonzero()[0]
    vectors = index.vectors.vectors[rows[have]]
    alike[np.ix_(have, have)] |= calibration.distance((vectors @ vectors.T).astype(np.float64)) >= ALIKE
    return alike


def _margins(distance: Floats, alike: npt.NDArray[np.bool_], echoes: Sequence[bool]) -> list[float]:
    """How far each is from the best of those that say something else, bounded; 0 without a vector."""
    others = distance.copy()
    others[: len(echoes)][list(echoes)] = np.nan
    rivals = np.where(alike | np.isnan(others)[None, :], UNRELATED_BEST, others[None, :])
    best = np.maximum(rivals.max(1, initial=UNRELATED_BEST), UNRELATED_BEST)
    margins: list[float] = np.nan_to_num(np.clip(distance - best, BEHIND, CLEAR)).tolist()
    return margins
