"""Prepares a query for the arms: terms, word pieces, vector and bits in context.

Invariant: queries and entries are split into words by the same rules. Function words of other languages than English
are left out of queries only; the analyser leaves out English stop words everywhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...schemas.ports import TokenBits
from ...schemas.rules.dates import days_asked
from ...schemas.rules.languages import language_of, languages
from ...schemas.rules.statements import QueryKind, parts_of, told_by
from ...schemas.rules.stop_words import foreign_language
from ...schemas.rules.text import Analyzer, fold, with_named_months, words_of
from ...schemas.rules.updates import with_english_months
from ...schemas.rules.word_forms import pairs_of, without_marks
from ...schemas.rules.word_pieces import pieces_of
from .arms.late import LateQuery
from .arms.wording import Wording
from .hot.token_store import Words
from .hot.vector_matrix import Vectors
from .search import Query

MAX_QUERY_TERMS: Final = 128
"""Distinct terms of a query that count; bounds the cost of very long queries."""
MAX_QUERY_PIECES: Final = 64
"""Word pieces of a query that late interaction compares."""
AROUND_QUOTED: Final = 0.3
"""Weight in late interaction of the words around a quotation (docs/conversational.md)."""


def no_table() -> Words | None:
    """The default if there is no static table."""
    return None


def query_of(
    text: str,
    analyzer: Analyzer,
    vector: Vectors | None,
    tokens: TokenBits | None,
    table: Words | None,
    *,
    day: int | None = None,
    queries: Vectors | None = None,
) -> Query:
    """Build the query.

    Args:
        text: The question.
        analyzer: The analyser of the full-text fold.
        vector: (d,) float32, L2-normalised; None if there is none.
        tokens: Its bits in context, of the vector's model, or None.
        table: The static table, or None.
        day: The day of the question, days since 1970-01-01 (UTC); None to ignore relative dates.
        queries: (d,) float32 mean vector of all sorts of queries under the vector's model; None if it was not measured.
    """
    told = told_by(text)
    parts = parts_of(text) if told is QueryKind.QUOTES else [(text, True)]
    written, quoted = list[str](), list[bool]()
    for part, is_quoted in parts:
        written += words_of(with_named_months(part))
        quoted += [is_quoted] * (len(written) - len(quoted))
    words = [word.casefold() for word in written]
    keyed = list(zip(words, analyzer.keys_of(words), strict=True))
    language = foreign_language(words)
    empty = language.words if language else frozenset()
    content = [at for at, (word, key) in enumerate(keyed) if key and word not in empty]
    content = content or [at for at, (_, key) in enumerate(keyed) if key]
    terms: list[int] = []
    forms: dict[int, int] = {}
    written_as: dict[int, str] = {}
    for at in content:
        word, key = keyed[at]
        pairs = pairs_of(word)
        terms += analyzer.keys_of(pairs) if pairs else [key]
        if not pairs:
            written_as.setdefault(key, written[at])
        if (bare := without_marks(word)) != word:
            forms |= dict.fromkeys(analyzer.keys_of([bare]), key)
    if language:
        forms |= zip(analyzer.foreign_keys(words, language), (key for _, key in keyed), strict=True)
    terms = [term for term in dict.fromkeys(terms) if term][:MAX_QUERY_TERMS]
    pieces = [
        (piece, key, 1.0 if is_quoted else AROUND_QUOTED)
        for (word, key), is_quoted in zip(keyed, quoted, strict=True)
        if key
        for piece in pieces_of(word)
    ][:MAX_QUERY_PIECES]
    late = LateQuery(
        np.array([piece for piece, _, _ in pieces], np.int64),
        tuple(key for _, key, _ in pieces),
        table,
        _capped(tokens),
        tuple(weight for _, _, weight in pieces) if told is QueryKind.QUOTES else (),
    )
    forms = {form: key for form, key in forms.items() if form and form not in terms and key in terms}
    pairs_of_words = [pair for word, _ in keyed for pair in pairs_of(word)]
    names = dict(zip(analyzer.keys_of(pairs_of_words), pairs_of_words, strict=True))
    names |= {key: word for word, key in reversed(keyed)}
    spoken = language_of(words)
    dated = fold(text)
    if language is not None and language.code == "fr":
        dated, spoken = with_english_months(dated), languages()[0]
    as_of = None if day is None or told is not QueryKind.ASKS else days_asked(dated, day, spoken)
    as_of_day = None if as_of is None else (as_of.first + as_of.last) // 2
    return Query(text, terms, vector, late, day, Wording(forms, written_as, analyzer), names, told, queries, as_of_day)


def _capped(tokens: TokenBits | None) -> TokenBits | None:
    if tokens is None:
        return None
    return TokenBits(
        tokens.quantiser, tokens.bits[: MAX_QUERY_PIECES * tokens.dim // 8], tokens.dim, tokens.first_passage
    )
