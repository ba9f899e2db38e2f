"""Recognises texts in languages other than English by their most frequent words: ``language/stop_words.json``.

Invariant: pure; the lists are read once, from the package alone, so the same words always give the same language. A
change of a list is a new ``analyzer.VERSION``, because texts are also indexed under the stems of their language.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

CLEARLY_SHOWN: Final = 2
"""Number of different non-English stop words that prove a language; one is not enough, because the English "war room"
contains the German "war".
"""


@dataclass(frozen=True, slots=True)
class ForeignLanguage:
    """A language other than English.

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
    """Words of English and of program code. They are no evidence for another language that has the same word."""
    return english_stop_words().union(_data()["en"]["ambiguous"].split())


@cache
def foreign_languages() -> tuple[ForeignLanguage, ...]:
    """Every language other than English for which the package has data; the first wins a tie."""
    return tuple(
        ForeignLanguage(code, data["stemmer"], frozenset(data["words"].split()))
        for code, data in _data().items()
        if "stemmer" in data and code != "en"
    )


@cache
def function_characters() -> frozenset[str]:
    """Chinese characters that are function words and hardly occur in other words: particles, pronouns, question words."""
    return frozenset(_data()["zh"]["characters"])


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
