"""The arm of late interaction: compares the word pieces of a query with those of turns, by the bits of both.

It gives values to the turns that other arms found. If these are fewer than requested hits, it also finds turns that share no
word with the query: ``chat.*`` entries have no vectors, so no other arm can find such a turn.

Invariant: bits in context are compared only with bits of the same model and quantiser; word pieces are compared through
the static table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import TokenBits
from ..index.arrays import Docs, union
from ..index.entry_index import HotIndex
from ..index.scoped import ScopedDocuments
from ..index.vectors import TokenStore, Words, words_of
from .arms import idf_of
from .asking import LateQuery
from .recipes import ConversationWeights, Interaction

# Late interaction with one bit per dimension: compares each word piece of a query with those of an entry.


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


@dataclass(frozen=True, slots=True)
class Around:
    """The turns around m turns in their sessions.

    Attributes:
        docs: (m,) intp the turns, ascending.
        previous: (m,) intp previous turn; -1 for none.
        previous_at: (m,) int64 its index among ``docs``; -1 for none, -2 if it is not among them.
        following_at: (m,) int64 the same for the next turn.
        helper: (m,) intp previous turn if both are short, else -1.
        helper_before: (m,) intp the turn before ``helper``, under the same condition.
        long: (m,) bool: turns too long to use previous turns.
    """

    docs: Docs
    previous: Docs
    previous_at: npt.NDArray[np.int64]
    following_at: npt.NDArray[np.int64]
    helper: Docs
    helper_before: Docs
    long: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LateResult:
    """The values of the candidates that are turns, and the turns that the arm adds.

    Attributes:
        static: (m,) float64 by word pieces, NaN for a turn without any; None if the query has none.
        context: (m,) float64 in context, likewise.
        added: (a,) intp turns that are no candidates, ascending.
        values: (a,) float64 their values by word pieces.
    """

    static: Floats | None
    context: Floats | None
    added: Docs
    values: Floats


def search_late(
    index: HotIndex,
    scoped: ScopedDocuments,
    query: LateQuery | None,
    idf: Mapping[int, float],
    around: Around,
    weights: ConversationWeights,
    candidates: Docs | None,
) -> LateResult:
    """Compare a query with turns.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        query: The query's part; None if it takes no part.
        idf: Of the query's terms in scope.
        around: The candidates that are turns.
        weights: The recipe's constants.
        candidates: All candidates, ascending, if they are fewer than requested hits; None adds no turn. Each lane is longer
            than that, so every turn with a comparable vector is a candidate already.
    """
    nothing = LateResult(None, None, around.docs[:0], np.empty(0))
    if query is None:
        return nothing
    compared = [(query, around)]
    if candidates is not None and query.table is not None:
        newest = _newest(scoped.turns, weights.alone_turns + len(candidates))
        alone = newest[np.isin(newest, candidates, assume_unique=True, invert=True)][-weights.alone_turns :]
        none = np.full(len(alone), -1)  # without previous turns: only a turn's own words may add it
        long = index.documents.words[alone] > weights.max_words
        compared.append((replace(query, tokens=None), Around(alone, none, none, none, none, none, long)))
    (static, context), *further = [_values(index, scoped, late, idf, turns, weights) for late, turns in compared]
    if not further or (values := further[0][0]) is None:
        return replace(nothing, static=static, context=context)
    kept = values >= weights.alone_floor  # NaN (a turn without pieces) compares as below
    return LateResult(static, context, alone[kept], values[kept])


def _newest(turns: npt.NDArray[np.bool_], wanted: int) -> Docs:
    """The last ``wanted`` rows that are turns, ascending; reads backwards only as far as needed."""
    span = wanted
    while True:
        first = max(0, len(turns) - span)
        docs = np.flatnonzero(turns[first:])[-wanted:]
        if len(docs) == wanted or not first:
            return docs + first
        span *= 4


def _values(
    index: HotIndex,
    scoped: ScopedDocuments,
    query: LateQuery,
    idf: Mapping[int, float],
    around: Around,
    weights: ConversationWeights,
) -> tuple[Floats | None, Floats | None]:
    """Values by word pieces and in context: (m,) float64, NaN for a turn without bits; None if the query has none."""
    store = index.vectors.tokens if index.vectors is not None else None
    bits = query.tokens
    by_pieces = query.table is not None and len(query.pieces) > 0
    in_context = weights.in_context and store is not None and bits is not None and _match(store, bits)
    if not len(around.docs) or (not by_pieces and not in_context):
        return None, None
    needed, turns = _needed(around)
    unheard = idf_of(0, scoped.size)  # a word that does not occur in scope
    of_piece = np.array([idf.get(term, unheard) for term in query.terms]) ** weights.idf_power
    if query.emphasis:
        of_piece *= np.array(query.emphasis)
    static = context = None
    if by_pieces:
        assert query.table is not None
        pieces = index.turns.pieces.gather(needed)
        different, at = _different(index.turns.pieces.values.take(pieces.at), len(query.table))
        tokens = DocumentTokens(
            np.take(query.table, different, axis=0),
            at,
            pieces.counts,
            index.turns.first_passage[needed].astype(np.int64),
        )
        dim = query.table.shape[1] * 64
        static = interact(query.table[query.pieces], of_piece, tokens, turns, weights.static, dim)
    if in_context:
        assert store is not None
        assert bits is not None
        runs = store.runs.gather(needed)
        first = np.zeros(len(needed), np.int64)
        known = needed < len(store)
        first[known] = store.first_passage[needed[known]]
        asked = words_of(bits.bits, bits.dim)
        tokens = DocumentTokens(np.take(store.runs.values, runs.at, axis=0), None, runs.counts, first)
        # weights apply only if the model's tokenizer gives the same pieces as ours; else all pieces weigh the same
        of_token = of_piece if len(of_piece) == len(asked) else np.ones(len(asked))
        context = interact(asked, of_token, tokens, turns, weights.context, bits.dim)
    return static, context


def _different(pieces: npt.NDArray[np.uint16], size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Distinct pieces, ascending, and the index of each piece among them; a table is faster than sorting."""
    index = pieces.astype(np.intp)  # avoids a second conversion
    seen = np.zeros(size, bool)
    seen[index] = True
    different = seen.nonzero()[0]
    place = np.empty(size, np.int64)
    place[different] = np.arange(len(different))
    return different, place.take(index)


def _match(store: TokenStore, bits: TokenBits) -> bool:
    return bool(bits.bits) and store.quantiser == bits.quantiser and store.dim == bits.dim


def _needed(around: Around) -> tuple[Docs, CandidateTurns]:
    """Documents whose bits are needed, ascending, and the indices of turns and helpers among them."""
    helpers = np.concatenate((around.helper, around.helper_before))
    needed = union(around.docs, helpers[helpers >= 0])
    candidate = needed.searchsorted(around.docs)

    def place(some: Docs) -> npt.NDArray[np.int64]:
        return np.where(some >= 0, needed.searchsorted(some), NO_TURN)

    long = np.zeros(len(needed), bool)
    long[candidate] = around.long
    return needed, CandidateTurns(candidate, place(around.helper), place(around.helper_before), long)
