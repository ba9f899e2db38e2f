"""Turns text into terms; the full-text fold and queries use the same analyser.

A text is indexed under its *terms* (one for each word that is not a stop word) and its *further terms*: parts of
identifiers, pairs of characters in scripts without spaces (``word_forms``), and in another language than English the
stems of that language (``stop_words``).

Invariant: pure; the stemmers (PyStemmer's class ``Stemmer``) are an argument, because this package imports no third
party but pydantic. A changed rule is a new ``VERSION`` and a rebuild of the full-text view. Evidence for stop
words with question words, stemming and the date prefix: facts/retrieval.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from ..ids import hash64
from ..timestamps import from_ms
from .stop_words import ForeignLanguage, english_stop_words, foreign_language
from .word_forms import MARKS, pairs_of, parts_of

VERSION: Final = 2
STEMMER: Final = "english"
"""Name of the Snowball algorithm of every term; it rarely changes words of other languages."""
STOP_WORDS: Final = english_stop_words()
MAX_TOKEN: Final = 64
"""Longer words (base64, hashes) are cut to this number of characters."""
MAX_PAYLOAD_DEPTH: Final = 6
MAX_TOKENS: Final = 8_000
"""Maximum number of indexed words of one entry; bounds the postings of a 256 KiB payload."""

_STOP: Final = "\x00"
_ASCII_WORD: Final = re.compile(r"[^\W_]+")
_WORD: Final = re.compile(rf"[^\W_](?:[{MARKS}]|[^\W_])*")
_ISO_DATE: Final = re.compile(
    r"(?<![\w-])((?:19|20)\d\d)-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?(?:T[\d:.]+Z?)?(?![\w-])"
)
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


class WordStemmer(Protocol):
    """A Snowball stemmer."""

    def stemWords(self, words: list[str]) -> list[str]:  # noqa: N802 - PyStemmer's name
        """The stem of each word."""


StemmerOf = Callable[[str], WordStemmer]
"""The stemmer of a Snowball algorithm by its name: PyStemmer's ``Stemmer``."""


def fold(text: str) -> str:
    """The text in NFKC and case-folded."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()


def words_of(text: str) -> list[str]:
    """The words of a text as written: maximal runs of Unicode letters, their marks and digits in NFKC, in order."""
    return _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(unicodedata.normalize("NFKC", text))


def tokens_of(text: str) -> list[str]:
    """The words of a text, folded, in order."""
    if text.isascii():  # folding moves no boundary there
        return _ASCII_WORD.findall(text.casefold())
    return [word.casefold() for word in words_of(text)]


class Analyzer:
    """Maps words to 64-bit term keys, with a bounded cache.

    Args:
        stemmer_of: The stemmer of a Snowball algorithm.
        cache_size: Words in the cache, which is emptied when full.
    """

    def __init__(self, stemmer_of: StemmerOf, cache_size: int = 200_000) -> None:
        self._stemmer_of = stemmer_of
        self._english = stemmer_of(STEMMER)
        self._foreign: dict[str, WordStemmer] = {}
        self._cache_size = cache_size
        self._keys: dict[str, int] = dict.fromkeys(STOP_WORDS, 0)

    def terms(self, text: str) -> list[int]:
        """The term key of every word of ``text``, in order, without stop words."""
        return [key for key in self.keys_of(tokens_of(text)) if key]

    def phrase_terms(self, text: str) -> list[int]:
        """The term keys of every entry with the phrase ``text``; those of character pairs in scripts without spaces."""
        return [
            key
            for key in self.keys_of([part for token in tokens_of(text) for part in pairs_of(token) or [token]])
            if key
        ]

    def further_terms(self, text: str) -> list[int]:
        """The key of every further term of ``text``: those of the parts of its words, then those of its language."""
        parts = [key for word in words_of(text) for key in self.part_keys(word)]
        tokens = tokens_of(text)
        language = foreign_language(tokens)
        return parts if language is None else parts + [key for key in self.foreign_keys(tokens, language) if key]

    @staticmethod
    def stop_keys(text: str) -> list[int]:
        """The key of every English stop word of ``text``, in order; no term has such a key."""
        return [hash64(_STOP + token) for token in tokens_of(text) if token in STOP_WORDS]

    def keys_of(self, tokens: list[str]) -> list[int]:
        """The term key of each folded word, 0 for a stop word."""
        keys = self._keys
        keys_: list[Any] = list(map(keys.get, tokens))
        if None in keys_:
            unknown = [at for at, key in enumerate(keys_) if key is None]
            learned = self._learned({tokens[at] for at in unknown})
            if len(keys) + len(learned) > self._cache_size:
                self._keys = dict.fromkeys(STOP_WORDS, 0)
                self._keys.update(learned)
            else:
                keys.update(learned)
            for at in unknown:
                keys_[at] = learned[tokens[at]]
        return keys_

    def part_keys(self, word: str) -> list[int]:
        """The term keys of the parts of a word as written; most words have no such key."""
        parts = parts_of(word)
        return [key for key in self.keys_of(list(parts)) if key] if parts else []

    def foreign_keys(self, tokens: list[str], language: ForeignLanguage) -> list[int]:
        """The key of the stem of each folded word in a language; 0 if it equals its term key, or for a stop word."""
        stemmer = self._foreign.get(language.stemmer)
        if stemmer is None:
            stemmer = self._foreign[language.stemmer] = self._stemmer_of(language.stemmer)
        stems = stemmer.stemWords([token[:MAX_TOKEN] for token in tokens])
        pairs = zip(tokens, stems, self.keys_of(tokens), strict=True)
        return [
            0 if not own_key or token in language.words or (key := _key(stem)) == own_key else key
            for token, stem, own_key in pairs
        ]

    def _learned(self, unknown: set[str]) -> dict[str, int]:
        words = sorted(unknown)
        stems = self._english.stemWords([word[:MAX_TOKEN] for word in words])
        return {word: _key(stem) for word, stem in zip(words, stems, strict=True)}


def _key(stem: str) -> int:
    return hash64(stem) or 1


def date_prefix(ts_ms: int) -> str:
    """``7 May 2023``, so that a question can name the day (+.02 recall, facts/retrieval.md)."""
    day = from_ms(ts_ms)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def with_named_months(text: str) -> str:
    """``text`` with its dates like 2026-11-21 or 2026-11 written as ``date_prefix`` writes them."""
    return _ISO_DATE.sub(lambda date: f"{date[3] or ''} {_MONTHS[int(date[2]) - 1]} {date[1]}".lstrip(" 0"), text)


def strings_in(value: object, depth: int = 0) -> Iterator[str]:
    """Every string of a JSON value except keys, depth-first."""
    if isinstance(value, str):
        yield value
    elif depth < MAX_PAYLOAD_DEPTH:
        if isinstance(value, Mapping):
            for item in value.values():
                yield from strings_in(item, depth + 1)
        elif isinstance(value, list):
            for item in value:
                yield from strings_in(item, depth + 1)


def indexed_text(ts_ms: int, summary: str, payload: Mapping[str, Any]) -> str:
    """The text of an entry that is indexed: date, summary, strings of the payload (DESIGN §7)."""
    if not payload:
        return f"{date_prefix(ts_ms)} {summary}"
    return " ".join((date_prefix(ts_ms), summary, *strings_in(payload)))
