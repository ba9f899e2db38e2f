"""The phrase search of ``q``: finds candidates through the postings and verifies them by comparing folded text.

Invariant: an entry matches if it contains every indexed term of the phrase *and* the summary or a string of the payload
contains the folded phrase. The same rule holds for stored and live entries; the conditions for DuckDB only exclude
entries that cannot match.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson
from Stemmer import Stemmer

from ....schemas.errors import InvalidQuery
from ....schemas.ids import hash64
from ....schemas.rules.text import MAX_TOKENS, Analyzer, fold, indexed_text, strings_in
from ....schemas.settings import Q_MAX_CHARS
from ....schemas.views import POSTINGS, POSTINGS_TAIL
from .visibility import Condition

_JSON_ESCAPED: Final = frozenset('"\\')

_analyzer_lock = threading.Lock()


class _SharedAnalyzer:
    """One analyser for all phrases, with a lock, because its cache and the stemmer are not thread-safe."""

    analyzer: Analyzer | None = None

    @classmethod
    def phrase_terms(cls, text: str) -> set[int]:
        with _analyzer_lock:
            return set(cls._get().phrase_terms(text))

    @classmethod
    def indexed_terms(cls, text: str) -> set[int]:
        with _analyzer_lock:
            analyzer = cls._get()
            return {*analyzer.terms(text)[:MAX_TOKENS], *analyzer.further_terms(text)[:MAX_TOKENS]}

    @classmethod
    def _get(cls) -> Analyzer:
        if cls.analyzer is None:
            cls.analyzer = Analyzer(Stemmer)
        return cls.analyzer


def _folded(text: str) -> str:
    return " ".join(fold(text).split())


@dataclass(frozen=True)
class Phrase:
    """A phrase to search for.

    Attributes:
        folded: The phrase in NFKC, case-folded, with single blanks.
        terms: Its distinct indexed terms, sorted; empty if it consists of stop words or punctuation.
    """

    folded: str
    terms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Phrase | None:
        """Parse a ``q`` parameter; None if it is blank.

        Raises:
            InvalidQuery: If it is longer than ``Q_MAX_CHARS`` characters.
        """
        if len(text) > Q_MAX_CHARS:
            raise InvalidQuery(
                f"q has {len(text)} characters, at most {Q_MAX_CHARS} are allowed",
                hint=f"q: send at most {Q_MAX_CHARS} characters",
                field="q",
            )
        folded = _folded(text)
        return cls(folded, tuple(sorted(_SharedAnalyzer.phrase_terms(text)))) if folded else None

    def found_in(self, summary: str, payload: Mapping[str, Any]) -> bool:
        """Whether the summary or one string of the payload contains the folded phrase."""
        return self.folded in _folded(summary) or any(self.folded in _folded(text) for text in strings_in(payload))

    def found_in_row(self, summary: str, payload_json: str) -> bool:
        """``found_in`` for a row of ``journal_entries``."""
        if self.folded in _folded(summary):
            return True
        return '"' in payload_json and self.found_in("", orjson.loads(payload_json))

    def matches(self, ts_ms: int, summary: str, payload: Mapping[str, Any]) -> bool:
        """Whether an entry matches, without an index."""
        if not self.found_in(summary, payload):
            return False
        if not self.terms:
            return True
        return _SharedAnalyzer.indexed_terms(indexed_text(ts_ms, summary, payload)).issuperset(self.terms)

    def candidates(self, workspace_id: str, *, archive: bool = False) -> list[Condition]:
        """Conditions over entries that every matching one fulfils, the cheapest first.

        Args:
            workspace_id: The workspace.
            archive: Whether archived entries, which have no postings and a ``bucket_id``, are among them.
        """
        conditions = []
        if self.terms:
            marks = ", ".join("?" * len(self.terms))
            where = f"ws = ? AND term IN ({marks})"
            params = (hash64(workspace_id), *self.terms)
            archived = "bucket_id IS NOT NULL OR " if archive else ""
            conditions.append(
                Condition(
                    f"({archived}seq IN (SELECT doc FROM"
                    f" (SELECT doc, term FROM {POSTINGS} WHERE {where} UNION ALL"
                    f" SELECT doc, term FROM {POSTINGS_TAIL} WHERE {where})"
                    " GROUP BY doc HAVING count(DISTINCT term) = ?))",
                    (*params, *params, len(self.terms)),
                )
            )
        if (needle := self._needle) is not None:
            conditions.append(
                Condition(
                    "(contains(lower(summary), ?) OR contains(lower(payload), ?)"
                    " OR strlen(summary) <> length(summary) OR strlen(payload) <> length(payload)"
                    " OR contains(payload, '\\u'))",
                    (needle, needle),
                )
            )
        return conditions

    @cached_property
    def _needle(self) -> str | None:
        """The longest word of the phrase that JSON does not escape; every matching plain-ASCII row contains it."""
        words = [w for w in self.folded.split() if w.isascii() and w.isprintable() and not _JSON_ESCAPED & set(w)]
        return max(words, key=len, default=None)
