"""Turns text into terms; the full-text fold and queries use the same analyser.

Invariant: pure; the stemmer (PyStemmer's ``Stemmer("english").stemWords``) is an argument, because this package imports
no third party but pydantic. A changed rule is a new ``VERSION`` and a rebuild of the full-text view. Evidence for stop
words with question words, stemming and the date prefix: facts/retrieval.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..ids import hash64
from ..timestamps import from_ms

VERSION: Final = 1
STEMMER: Final = "english"
"""Name of the Snowball algorithm; it rarely changes words of other languages."""
MAX_TOKEN: Final = 64
"""Longer words (base64, hashes) are cut to this number of characters."""
MAX_PAYLOAD_DEPTH: Final = 6
MAX_TOKENS: Final = 8_000
"""Most indexed words of one entry; bounds the postings of a 256 KiB payload."""

_TOKEN: Final = re.compile(r"[^\W_]+")
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

STOP_WORDS: Final = frozenset(
    [
        "a",
        "about",
        "after",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "before",
        "being",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "for",
        "from",
        "had",
        "has",
        "have",
        "having",
        "he",
        "her",
        "here",
        "hers",
        "him",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "itself",
        "just",
        "me",
        "more",
        "most",
        "my",
        "no",
        "nor",
        "not",
        "of",
        "off",
        "on",
        "once",
        "only",
        "or",
        "other",
        "our",
        "out",
        "over",
        "own",
        "same",
        "she",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "through",
        "to",
        "too",
        "under",
        "until",
        "up",
        "very",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "s",
        "t",
        "d",
        "ll",
        "m",
        "re",
        "ve",
        "don",
    ]
)

StemWords = Callable[[list[str]], list[str]]


def fold(text: str) -> str:
    """The text in NFKC and case-folded."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()


def tokens_of(text: str) -> list[str]:
    """The words of a text: maximal runs of Unicode letters and digits, folded, in order."""
    return _TOKEN.findall(fold(text))


class Analyzer:
    """Maps words to 64-bit term keys, with a bounded cache.

    Args:
        stem_words: Stems a list of words.
        cache_size: Words in the cache, which is emptied when full.
    """

    def __init__(self, stem_words: StemWords, cache_size: int = 200_000) -> None:
        self._stem_words = stem_words
        self._cache_size = cache_size
        self._keys: dict[str, int] = dict.fromkeys(STOP_WORDS, 0)

    def terms(self, text: str) -> list[int]:
        """The term key of every word of ``text``, in order, without stop words."""
        tokens = _TOKEN.findall(fold(text))
        keys = self._keys
        try:
            return [key for token in tokens if (key := keys[token])]
        except KeyError:
            return [key for key in self.keys_of(tokens) if key]

    def keys_of(self, tokens: list[str]) -> list[int]:
        """The term key of each folded word, 0 for a stop word."""
        keys = self._keys
        found: list[Any] = list(map(keys.get, tokens))
        if None in found:
            unknown = [at for at, key in enumerate(found) if key is None]
            learned = self._learned({tokens[at] for at in unknown})
            if len(keys) + len(learned) > self._cache_size:
                self._keys = dict.fromkeys(STOP_WORDS, 0)
                self._keys.update(learned)
            else:
                keys.update(learned)
            for at in unknown:
                found[at] = learned[tokens[at]]
        return found

    def _learned(self, unknown: set[str]) -> dict[str, int]:
        words = sorted(unknown)
        stems = self._stem_words([word[:MAX_TOKEN] for word in words])
        return {word: hash64(stem) or 1 for word, stem in zip(words, stems, strict=True)}


def date_prefix(ts_ms: int) -> str:
    """``7 May 2023``, so that a question can name the day (+.02 recall, facts/retrieval.md)."""
    day = from_ms(ts_ms)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


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
