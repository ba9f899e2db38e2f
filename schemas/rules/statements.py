"""Decides whether a query is a question or a statement, such as "I am off to the airport with the kids".

A statement is matched by meaning, because the relevant entries seldom have its words. A situation that quotes
somebody ("Ben got in and said: 'The usual, please'") is matched by the quoted speech.

Invariant: pure; a list of words ("checkout deploy denied") is not a statement, and in doubt a query is a question.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from .languages import language_of
from .text import fold, tokens_of

LEAST_WORDS: Final = 3
"""Minimum number of words of a statement."""
_QUOTED: Final = re.compile(r"(?<![^\s(:,])(['\"“‘„«])(.+?)['\"”’“»](?=[\s.,;!?)]|$)", re.DOTALL)
_OPENS: Final = frozenset("'\"‘“„«")
_LEAST_QUOTED: Final = 2
"""Minimum number of words of quoted speech; one word in quotes is a name."""


class QueryKind(Enum):
    """The kind of a query."""

    ASKS = "asks"
    STATES = "states"
    QUOTES = "quotes"
    """A statement that quotes what somebody said."""


def parts_of(text: str) -> list[tuple[str, bool]]:
    """The parts of the text in order, and whether each is quoted speech."""
    parts: list[tuple[str, bool]] = []
    end = 0
    if _OPENS.isdisjoint(text):
        return [(text, False)]
    for quotation in _QUOTED.finditer(text):
        if len(tokens_of(quotation[2])) >= _LEAST_QUOTED:
            parts += [(text[end : quotation.start(2)], False), (quotation[2], True)]
            end = quotation.end(2)
    return [*parts, (text[end:], False)]


def told_by(text: str) -> QueryKind:
    """Whether a query is a question, a statement or a statement with a quotation."""
    parts = parts_of(text)
    unquoted = " ".join(part for part, quoted in parts if not quoted)
    words = tokens_of(unquoted)
    if "?" in unquoted or len(words) < (LEAST_WORDS if len(parts) == 1 else 2):
        return QueryKind.ASKS
    language = language_of(words)
    if len(parts) == 1 and language.subjects.isdisjoint(words):
        return QueryKind.ASKS
    if words[0] in language.opens_question or language.asks_indirectly.search(fold(unquoted)):
        return QueryKind.ASKS
    return QueryKind.QUOTES if len(parts) > 1 else QueryKind.STATES
