"""A question as the arms take it: its terms, its word pieces, its vector and its tokens in context.

Invariant: the query is cut by the same rules as entries are; of its terms, function words of its own language are left out
where that is not English, whose the analyser leaves out everywhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...schemas.ports import TokenBits
from ...schemas.rules.languages import function_words_of
from ...schemas.rules.statements import Told, parts_of, told_by
from ...schemas.rules.text import Analyzer, tokens_of
from ...schemas.rules.word_pieces import pieces_of
from .arms.late import LateQuery
from .hot.token_store import Words
from .hot.vector_matrix import Vectors
from .search import Query

MAX_QUERY_TERMS: Final = 128
"""Distinct terms of a query that count; a whole document as a query costs no more than a long paragraph."""
MAX_QUERY_PIECES: Final = 64
"""Word pieces, and tokens in context, that late interaction compares."""
AROUND_QUOTED: Final = 0.3
"""Weight in late interaction of a situation's words beside what is quoted in it (docs/conversational.md)."""


def no_table() -> Words | None:
    """For a place without the static table."""
    return None


def query_of(
    text: str,
    analyzer: Analyzer,
    vector: Vectors | None,
    tokens: TokenBits | None,
    table: Words | None,
    *,
    day: int | None = None,
) -> Query:
    """The query.

    Args:
        text: The question.
        analyzer: As the full-text fold uses it.
        vector: (d,) float32, L2-normalised; None if there is none.
        tokens: Its tokens in context, of the vector's model; None if there are none.
        table: The static table, None if it is not installed.
        day: The day it is asked on, days since 1970-01-01 (UTC); None if relative dates are to name no day.
    """
    told = told_by(text)
    parts = parts_of(text) if told is Told.QUOTES else [(text, True)]
    words, quoted = list[str](), list[bool]()
    for part, is_quoted in parts:
        words += tokens_of(part)
        quoted += [is_quoted] * (len(words) - len(quoted))
    keys = analyzer.keys_of(words)
    said = list(zip(words, keys, strict=True))
    empty = function_words_of(words)
    telling = [key for word, key in said if key and word not in empty] or [key for _, key in said if key]
    terms = list(dict.fromkeys(telling))[:MAX_QUERY_TERMS]
    pieces = [
        (piece, key, 1.0 if is_quoted else AROUND_QUOTED)
        for (word, key), is_quoted in zip(said, quoted, strict=True)
        if key
        for piece in pieces_of(word)
    ][:MAX_QUERY_PIECES]
    late = LateQuery(
        np.array([piece for piece, _, _ in pieces], np.int64),
        tuple(key for _, key, _ in pieces),
        table,
        _capped(tokens),
        tuple(weight for _, _, weight in pieces) if told is Told.QUOTES else (),
    )
    return Query(text, terms, vector, late, day, {key: word for word, key in reversed(said)}, told)


def _capped(tokens: TokenBits | None) -> TokenBits | None:
    if tokens is None:
        return None
    return TokenBits(
        tokens.quantiser, tokens.bits[: MAX_QUERY_PIECES * tokens.dim // 8], tokens.dim, tokens.first_passage
    )
