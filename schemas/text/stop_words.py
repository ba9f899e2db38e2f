"""Recognises texts in other languages than English by their most frequent words: ``language/stop_words.json``.

Invariant: pure, read once, from the package alone; the same words always give the same language. A change is a new
``analyzer.VERSION``, because texts are indexed under the stems of their language, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

CLEARLY_SHOWN: Final = 2
"""Number of different stop words, absent from English, that prove a language; one ("war room") is not enough."""


@dataclass(frozen=True, slots=True)
class ForeignLanguage:
    """A language beside English.

    Attributes:
        code: ISO 639-1.
        stemmer: Its Snowball algorithm.
        words: Its stop words, folded.
    """

    code: str
    stemmer: str
    words: frozenset[str]


@cache
def _data() -> Mapping[str, Mapping[str, str]]:
    text = resources.files(__package__).joinpath("language", "stop_words.json").read_text("utf-8")
    data: Mapping[str, Mapping[str, str]] = json.loads(text)
    return data


@cache
def english_stop_words() -> frozenset[str]:
    """Stop words of English, question words included; they are not indexed."""
    return frozenset(_data()["en"]["words"].split())


@cache
def stop_words_of(code: str) -> frozenset[str]:
    """Stop words of a language by its ISO 639-1 code, English included."""
    return frozenset(_data()[code]["words"].split())


@cache
def _english() -> frozenset[str]:
    """Words of English and of programs. If another language has the same word, it is evidence for neither."""
    return english_stop_words().union(_data()["en"]["ambiguous"].split())


@cache
def foreign_languages() -> tuple[ForeignLanguage, ...]:
    """Every language beside English that there is data for; the first wins a tie."""
    return tuple(
        ForeignLanguage(code, data["stemmer"], frozenset(data["words"].split()))
        for code, data in _data().items()
        if code != "en"
    )


@cache
def foreign_words() -> frozenset[str]:
    """Stop words that are evidence for a language other than English."""
    words = frozenset[str]().union(*(language.words for language in foreign_languages())) - _english()
    return frozenset(word for word in words if len(word) > 1 or not word.isascii())


def foreign_language(tokens: Sequence[str]) -> ForeignLanguage | None:
    """The language of a text by its folded tokens; None if it does not clearly differ from English."""
    showing = foreign_words()
    present = showing.intersection(tokens)
    if len(present) < CLEARLY_SHOWN:
        return None
    best = max(foreign_languages(), key=lambda language: len(present & language.words))
    best_count = len(present & best.words)
    english = len((_english() - best.words).intersection(tokens))
    return best if best_count >= CLEARLY_SHOWN and best_count > english else None
