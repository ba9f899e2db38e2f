"""Prepares a query: terms, word pieces, vector and bits in context for the arms, and what its text asks for.

Invariant: queries and entries are split into words by the same rules. Function words of other languages than English
are left out of queries only; the analyser leaves out English stop words everywhere. The text of a query is read here alone:
arms, fusion and evidence take what they need of it from ``Query``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import TokenBits
from ...schemas.recall.questions import (
    AnswerKind,
    QueryKind,
    asked_kind,
    asks_for_all,
    asks_for_summary,
    asks_nothing,
    is_question,
    parts_of,
    told_by,
)
from ...schemas.recall.turns import Question, question_of
from ...schemas.text.analyzer import Analyzer, fold, pairs_of, tokens_of, with_named_months, without_marks, words_of
from ...schemas.text.dates import days_asked
from ...schemas.text.languages import date_language_of
from ...schemas.text.stop_words import foreign_language, function_characters
from ...schemas.text.word_forms import PLAIN, Wording
from ...schemas.text.word_pieces import pieces_of
from ...schemas.text.word_rarity import background_frequency
from ..index.vectors import Vectors, Words

MAX_QUERY_TERMS: Final = 128
"""Distinct terms of a query that count; bounds the cost of very long queries."""
MAX_QUERY_PIECES: Final = 64
"""Word pieces of a query that late interaction compares."""
AROUND_QUOTED: Final = 0.3
"""Weight in late interaction of the words around a quotation (docs/conversational.md)."""


class Word(NamedTuple):
    """A folded word and its term key; a stop word is its own."""

    text: str
    key: int | str


def keyed_words(tokens: list[str], analyzer: Analyzer) -> list[Word]:
    """Folded words with their term keys, in order."""
    return [Word(word, key or word) for word, key in zip(tokens, analyzer.keys_of(tokens), strict=True)]


def _content_pairs(word: str) -> list[str]:
    """``pairs_of`` a word without those that have a Chinese function word in them; all if there are no others."""
    pairs = pairs_of(word)
    return [pair for pair in pairs if function_characters().isdisjoint(pair)] or pairs


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


@dataclass(frozen=True)  # no slots: what few searches need of the text is computed once, when it is first needed
class Query:
    """A prepared query.

    Attributes:
        text: Text of the query.
        vector: (d,) float32, L2-normalised, of the index's model; None if there is none.
        late: What late interaction compares; None if it has neither a table nor tokens.
        day: The day of the question, days since 1970-01-01 (UTC), for relative dates; None if not known.
        words: Term key → the folded word of the query that it stands for.
        told: Whether it asks, states or quotes.
        queries: (d,) float32 mean vector of all sorts of queries under the same model; None if it was not measured.
        as_of_day: The day that the question is about, if it names one; days since 1970-01-01.
        unspaced: Whether most of its words are of a script without spaces, which are looked up by pairs of characters.
    """

    text: str
    terms: Sequence[int]
    vector: Vectors | None
    late: LateQuery | None = None
    day: int | None = None
    wording: Wording = PLAIN
    words: Mapping[int, str] = field(default_factory=dict)
    told: QueryKind = QueryKind.ASKS
    queries: Vectors | None = None
    as_of_day: int | None = None
    unspaced: bool = False

    def with_vector(self, vector: Vectors | None) -> Query:
        """The same query with another vector, for another kind of text."""
        return replace(self, vector=vector)

    @cached_property
    def tokens(self) -> list[str]:
        """The folded words of the text in order."""
        return tokens_of(self.text)

    @cached_property
    def keyed(self) -> list[Word]:
        """The folded words of the text with their term keys; none without an analyser."""
        return [] if self.wording.analyzer is None else keyed_words(self.tokens, self.wording.analyzer)

    @cached_property
    def everyday(self) -> list[float]:
        """Of each term, how many texts of everyday language hold its word (``word_rarity``)."""
        return [background_frequency(self.words.get(term, "")) for term in self.terms]

    @cached_property
    def asks(self) -> bool:
        """Whether the text is a question."""
        return is_question(self.text)

    @cached_property
    def asks_nothing(self) -> bool:
        """Whether the text is a courtesy, or a request about what is at hand only."""
        return asks_nothing(self.text)

    @cached_property
    def asks_for_all(self) -> bool:
        """Whether many entries answer the question together."""
        return asks_for_all(self.text)

    @cached_property
    def sums_up(self) -> bool:
        """Whether the question asks for a summary."""
        return asks_for_summary(self.text)

    @cached_property
    def kind(self) -> AnswerKind | None:
        """The kind of answer that the question asks for; None if any will do."""
        return asked_kind(self.text)

    @cached_property
    def of_turns(self) -> Question:
        """What the question asks of turns of conversations: who said them, and when."""
        return question_of(self.text, self.day)


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
    also: Mapping[str, str] | None = None,
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
        also: Folded word → the folded word of the text for which it is looked up as well.
    """
    kind = told_by(text)
    parts = parts_of(text) if kind is QueryKind.QUOTES else [(text, True)]
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
        pairs = _content_pairs(word)
        terms += analyzer.keys_of(pairs) if pairs else [key]
        if not pairs:
            written_as.setdefault(key, written[at])
        if (bare := without_marks(word)) != word:
            forms |= dict.fromkeys(analyzer.keys_of([bare]), key)
    if language:
        forms |= zip(analyzer.foreign_keys(words, language), (key for _, key in keyed), strict=True)
    if also:
        forms |= zip(analyzer.keys_of(list(also)), analyzer.keys_of(list(also.values())), strict=True)
    terms = [term for term in dict.fromkeys(terms) if term][:MAX_QUERY_TERMS]
    late = None
    if table is not None or tokens is not None:
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
            None if tokens is None else replace(tokens, bits=tokens.bits[: MAX_QUERY_PIECES * tokens.dim // 8]),
            tuple(weight for _, _, weight in pieces) if kind is QueryKind.QUOTES else (),
        )
    forms = {form: key for form, key in forms.items() if form and form not in terms and key in terms}
    pairs_of_words = [pair for word, _ in keyed for pair in pairs_of(word)]
    names = dict(zip(analyzer.keys_of(pairs_of_words), pairs_of_words, strict=True))
    names |= {key: word for word, key in reversed(keyed)}
    as_of = None
    if day is not None and kind is QueryKind.ASKS:
        as_of = days_asked(fold(text), day, date_language_of(words))
    as_of_day = None if as_of is None else (as_of.first + as_of.last) // 2
    unspaced = 2 * len(pairs_of_words) > len(terms) > 0
    wording = Wording(forms, written_as, analyzer)
    return Query(text, terms, vector, late, day, wording, names, kind, queries, as_of_day, unspaced)
