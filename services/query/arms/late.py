"""Late interaction over the hot index: gathers the bits of query and documents and compares them.

Invariant: bits in context are compared only with bits of the same model and quantiser; word pieces are compared through
the static table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....schemas.ports import TokenBits
from ..hot.index import HotIndex
from ..hot.lists import Docs, union
from ..hot.token_store import TokenStore, Words, words_of
from ..recipes import ConversationWeights
from .late_interaction import NO_TURN, Tokens, Turns, interact
from .lexical import idf_of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LateQuery:
    """The parts of a query that late interaction compares.

    Attributes:
        pieces: (t,) int64 word pieces of the query, stop words left out.
        terms: Term key of each piece's word.
        table: (pieces, w) uint64, the static table; None if it is not installed.
        tokens: The query's bits in context; None if the model computes none.
        emphasis: Weight of each piece beside its idf; empty for 1 throughout.
    """

    pieces: npt.NDArray[np.int64]
    terms: tuple[int, ...]
    table: Words | None
    tokens: TokenBits | None
    emphasis: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """The turns around m candidates in their sessions.

    Attributes:
        previous: (m,) intp previous turn; -1 for none.
        previous_at: (m,) int64 its index among the candidates; -1 for none, -2 if it is not a candidate.
        following_at: (m,) int64 the same for the next turn.
        helper: (m,) intp previous turn if both are short, else -1.
        helper_before: (m,) intp the turn before ``helper``, under the same condition.
        long: (m,) bool: candidates too long to use previous turns.
    """

    previous: Docs
    previous_at: npt.NDArray[np.int64]
    following_at: npt.NDArray[np.int64]
    helper: Docs
    helper_before: Docs
    long: npt.NDArray[np.bool_]


def late_values(
    index: HotIndex,
    query: LateQuery | None,
    idf: Mapping[int, float],
    size: int,
    docs: Docs,
    around: Around,
    weights: ConversationWeights,
) -> tuple[Floats | None, Floats | None]:
    """Values by word pieces and in context: (m,) float64, NaN for a candidate without bits; None if the query has none."""
    if query is None:
        return None, None
    store = index.vectors.tokens if index.vectors is not None else None
    bits = query.tokens
    by_pieces = query.table is not None and len(query.pieces) > 0
    in_context = weights.in_context and store is not None and bits is not None and _match(store, bits)
    if not by_pieces and not in_context:
        return None, None
    needed, turns = _needed(docs, around)
    unheard = idf_of(0, size)  # a word that does not occur in scope
    of_piece = np.array([idf.get(term, unheard) for term in query.terms]) ** weights.idf_power
    if query.emphasis:
        of_piece *= np.array(query.emphasis)
    static = context = None
    if by_pieces:
        assert query.table is not None
        pieces = index.turns.pieces.gather(needed)
        different, at = _different(index.turns.pieces.values.take(pieces.at), len(query.table))
        tokens = Tokens(
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
        tokens = Tokens(np.take(store.runs.values, runs.at, axis=0), None, runs.counts, first)
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


def _needed(docs: Docs, around: Around) -> tuple[Docs, Turns]:
    """Documents whose bits are needed, ascending, and the indices of candidates and helpers among them."""
    helpers = np.concatenate((around.helper, around.helper_before))
    needed = union(docs, helpers[helpers >= 0])
    candidate = needed.searchsorted(docs)

    def place(some: Docs) -> npt.NDArray[np.int64]:
        return np.where(some >= 0, needed.searchsorted(some), NO_TURN)

    long = np.zeros(len(needed), bool)
    long[candidate] = around.long
    return needed, Turns(candidate, place(around.helper), place(around.helper_before), long)
