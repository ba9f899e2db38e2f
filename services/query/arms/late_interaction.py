"""Late interaction with one bit per dimension: compares each word piece of a query with those of an entry.

``D[t, i] = max over the word pieces of entry i of 1 - 2 hamming / dim``. A short entry may use the two turns before it:
``C[t, i] = max(D[t, i], D[t, i-1] - near, D[t, i-2] - far)``; its value is ``m = weighted mean over t``. The value of a
long one is that of its best passage. Then ``m -= length * ln(tokens + 8)`` (facts/conversational-recall.md).

With ``even > 0``, the mean is replaced by a soft minimum, ``-ln(weighted mean of exp(-even * C)) / even``: about the
mean minus ``even / 2`` of the variance. It prefers an entry that matches all words of the query to some degree over one
that matches a single word exactly (docs/conversational.md).

Invariant: pure; a candidate's value depends only on the query, on itself and on the two turns before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..hot.token_store import Words
from ..recipes import Interaction

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Distances = npt.NDArray[np.uint16]

LENGTH_OFFSET: Final = 8
BLOCK_WORDS: Final = 1 << 16
"""Pairs compared at once: 512 KB of 64-bit words, which fit into a core's cache."""
NO_TURN: Final = -1
_UNANSWERED: Final = -9.0
"""Lower than every similarity minus an offset."""


@dataclass(frozen=True, slots=True)
class DocumentTokens:
    """The word pieces of m documents, document after document.

    Attributes:
        words: (u, w) uint64 distinct word pieces.
        at: (total,) int64 index of each word piece in ``words``; None if ``words`` holds all in order.
        counts: (m,) int64.
        first: (m,) int64 number in the first passage of each document.
    """

    words: Words
    at: Ints | None
    counts: Ints
    first: Ints


@dataclass(frozen=True, slots=True)
class CandidateTurns:
    """Which of m documents are candidates, and their previous turns.

    Attributes:
        candidate: (c,) int64 index of each candidate among the documents.
        before: (c,) int64 index of the previous turn; ``NO_TURN`` if there is none or it must not be used.
        before_that: (c,) int64 the same for the turn before that.
        long: (m,) bool: documents whose best passage counts.
    """

    candidate: Ints
    before: Ints
    before_that: Ints
    long: npt.NDArray[np.bool_]


def distances(query: Words, tokens: Words) -> Distances:
    """(t, n) uint16: Hamming distance of each query token and each token.

    Processes one 64-bit word at a time over blocks that fit into the cache.
    """
    columns = np.ascontiguousarray(tokens.T)
    differing = np.zeros((len(query), len(tokens)), np.uint16)
    step = max(1, BLOCK_WORDS // max(1, len(query)))
    for start in range(0, len(tokens), step):
        block = differing[:, start : start + step]
        for word, column in enumerate(columns):
            block += np.bitwise_count(query[:, word, None] ^ column[start : start + step])
    return differing


def interact(
    query: Words, weights: Floats, tokens: DocumentTokens, turns: CandidateTurns, constants: Interaction, dim: int
) -> Floats:
    """Late interaction of each candidate: (c,) float64, NaN for one without word pieces.

    Args:
        query: (t, w) uint64 tokens of the query, at least one.
        weights: (t,) float64 weights of the query's tokens, not all 0.
        tokens: The documents' tokens.
        turns: The candidates and their previous turns.
        constants: Offsets and length term.
        dim: Bits per token.
    """
    filled = (tokens.counts > 0).nonzero()[0]
    if not len(filled):
        return np.full(len(turns.candidate), np.nan)
    weights = weights / weights.sum()
    nearest = distances(query, tokens.words)
    if tokens.at is not None:
        nearest = np.take(nearest, tokens.at, axis=1)
    begins = np.cumsum(tokens.counts) - tokens.counts
    best = np.full((len(query), len(tokens.counts) + 1), _UNANSWERED)  # the last column stands for NO_TURN
    best[:, filled] = _similarity(np.minimum.reduceat(nearest, begins[filled], axis=1), dim)
    own = turns.candidate
    answered = best[:, own]
    long = turns.long[own]
    for helper, offset in ((turns.before, constants.near), (turns.before_that, constants.far)):
        np.maximum(answered, best[:, np.where(long, NO_TURN, helper)] - offset, out=answered)
    values = _together(weights, answered, constants.even)
    cut = turns.long.nonzero()[0]
    if len(cut):
        cut = cut[(tokens.first[cut] > 0) & (tokens.first[cut] < tokens.counts[cut])]
    if len(cut):  # two passages: the better one counts
        passages = _passages(nearest, begins, tokens, cut, dim)
        of_document = np.zeros(len(tokens.counts))
        of_document[cut] = np.max([_together(weights, passage, constants.even) for passage in passages], axis=0)
        is_cut = np.isin(own, cut)
        values[is_cut] = of_document[own[is_cut]]
    values -= constants.length * np.log(tokens.counts[own] + LENGTH_OFFSET)
    return np.where(tokens.counts[own] > 0, values, np.nan)


def _together(weights: Floats, answered: Floats, even: float) -> Floats:
    """(c,) float64: the mean or soft minimum of the similarities (t, c); ``weights`` sum to 1."""
    values: Floats = weights @ answered if not even else np.log(weights @ np.exp(-even * answered)) / -even
    return values


def _similarity(hamming: Distances, dim: int) -> Floats:
    similar: Floats = 1.0 - hamming.astype(np.float64) * (2.0 / dim)
    return similar


def _passages(distances: Distances, begins: Ints, tokens: DocumentTokens, cut: Ints, dim: int) -> list[Floats]:
    """Best similarities in the first and in the second passage, each (t, long documents)."""
    first = begins[cut]
    middle, end = first + tokens.first[cut], first + tokens.counts[cut]
    # reduceat over [first, middle, end) triples: every third result lies between documents and is dropped
    edges = np.stack((first, middle, end), axis=1).ravel()
    padded = np.concatenate((distances, distances[:, -1:]), axis=1)
    runs = _similarity(np.minimum.reduceat(padded, edges, axis=1), dim)
    return [runs[:, 0::3], runs[:, 1::3]]
