"""Late interaction with one bit a dimension: how well each of a query's tokens is answered somewhere in an entry.

``D[t, i] = max over the tokens of entry i of 1 - 2 hamming / dim``. A short entry may lean on the two turns before it,
``C[t, i] = max(D[t, i], D[t, i-1] - near, D[t, i-2] - far)``, and counts ``m = weighted mean over t``; a long one counts by
its best passage. Then ``m -= length * ln(tokens + 8)`` (facts/conversational-recall.md).

With ``even > 0`` the mean is a soft minimum, ``-ln(weighted mean of exp(-even * C)) / even``: about the mean less
``even / 2`` of the variance, so an entry that answers each of the query's words somewhat stands before one that answers a
single word perfectly and the others not at all (docs/conversational.md).

Invariant: pure functions of bits; a candidate's value depends on the query, on itself and on its two turns before alone.
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
"""Pairs of tokens compared at once: 512 KB of 64-bit words, which a core's cache holds."""
NO_TURN: Final = -1
_UNANSWERED: Final = -9.0
"""Below every similarity less an offset."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of m documents, one document's after the other's.

    Attributes:
        words: (u, w) uint64 different tokens.
        at: (total,) int64 place of each token in ``words``; None if ``words`` holds them one by one.
        counts: (m,) int64.
        first: (m,) int64: how many belong to the first passage of a document.
    """

    words: Words
    at: Ints | None
    counts: Ints
    first: Ints


@dataclass(frozen=True, slots=True)
class Turns:
    """Which of m documents are candidates, and the turns before each.

    Attributes:
        candidate: (c,) int64 index of each candidate among the documents.
        before: (c,) int64 index of the turn before; ``NO_TURN`` if there is none or it may not help.
        before_that: (c,) int64 likewise the turn before that one.
        long: (m,) bool: documents that count by their best passage.
    """

    candidate: Ints
    before: Ints
    before_that: Ints
    long: npt.NDArray[np.bool_]


def distances(query: Words, tokens: Words) -> Distances:
    """(t, n) uint16: Hamming distance of each query token and each token.

    One pass a word of 64 bits over a block that stays in the cache, so every step runs over contiguous columns.
    """
    columns = np.ascontiguousarray(tokens.T)
    differing = np.zeros((len(query), len(tokens)), np.uint16)
    step = max(1, BLOCK_WORDS // max(1, len(query)))
    for start in range(0, len(tokens), step):
        block = differing[:, start : start + step]
        for word, column in enumerate(columns):
            block += np.bitwise_count(query[:, word, None] ^ column[start : start + step])
    return differing


def interact(query: Words, weights: Floats, tokens: Tokens, turns: Turns, constants: Interaction, dim: int) -> Floats:
    """(c,) float64: what late interaction says of each candidate; NaN for one that has no tokens.

    Args:
        query: (t, w) uint64 tokens of the query, at least one.
        weights: (t,) float64 weights of the query's tokens, not all 0.
        tokens: The documents' tokens.
        turns: The candidates and the turns before them.
        constants: Offsets and length term.
        dim: Bits a token.
    """
    filled = (tokens.counts > 0).nonzero()[0]
    if not len(filled):
        return np.full(len(turns.candidate), np.nan)
    weights = weights / weights.sum()
    found = distances(query, tokens.words)
    if tokens.at is not None:
        found = np.take(found, tokens.at, axis=1)
    begins = np.cumsum(tokens.counts) - tokens.counts
    best = np.full((len(query), len(tokens.counts) + 1), _UNANSWERED)  # the last column stands for NO_TURN
    best[:, filled] = _similarity(np.minimum.reduceat(found, begins[filled], axis=1), dim)
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
        passages = _passages(found, begins, tokens, cut, dim)
        of_document = np.zeros(len(tokens.counts))
        of_document[cut] = np.max([_together(weights, passage, constants.even) for passage in passages], axis=0)
        is_cut = np.isin(own, cut)
        values[is_cut] = of_document[own[is_cut]]
    values -= constants.length * np.log(tokens.counts[own] + LENGTH_OFFSET)
    return np.where(tokens.counts[own] > 0, values, np.nan)


def _together(weights: Floats, answered: Floats, even: float) -> Floats:
    """(c,) float64: how well a query is answered whose tokens are answered so well, (t, c); ``weights`` sum up to 1."""
    values: Floats = weights @ answered if not even else np.log(weights @ np.exp(-even * answered)) / -even
    return values


def _similarity(hamming: Distances, dim: int) -> Floats:
    similar: Floats = 1.0 - hamming.astype(np.float64) * (2.0 / dim)
    return similar


def _passages(found: Distances, begins: Ints, tokens: Tokens, cut: Ints, dim: int) -> list[Floats]:
    """Best similarity in the first and in the second passage, each (t, documents cut)."""
    first = begins[cut]
    middle, end = first + tokens.first[cut], first + tokens.counts[cut]
    # reduceat over [first, middle, end) triples: every third stretch lies between documents and is dropped
    edges = np.stack((first, middle, end), axis=1).ravel()
    padded = np.concatenate((found, found[:, -1:]), axis=1)
    runs = _similarity(np.minimum.reduceat(padded, edges, axis=1), dim)
    return [runs[:, 0::3], runs[:, 1::3]]
