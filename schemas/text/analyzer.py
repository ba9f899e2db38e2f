"""Turns text into terms; the full-text fold and queries use the same analyser.

A text is indexed under its *terms* (one for each word that is not a stop word) and its *further terms*: parts of
identifiers, pairs of characters in scripts without spaces, and, in languages other than English, the stems of that
language (``stop_words``).

Invariant: pure; the stemmers (PyStemmer's class ``Stemmer``) are an argument, because pydantic is the only third-party
package that this package imports. A changed rule is a new ``VERSION`` and a rebuild of the full-text view.
facts/retrieval.md has the evidence for stemming, the date prefix, and question words as stop words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Protocol

from ..core.ids import hash64
from ..core.timestamps import from_ms
from .stop_words import ForeignLanguage, english_stop_words, foreign_language

VERSION: Final = 2
STEMMER: Final = "english"
"""Name of the Snowball algorithm that stems every term; it rarely changes words of other languages."""
STOP_WORDS: Final = english_stop_words()
MAX_TOKEN: Final = 64
"""Longer words (base64, hashes) are cut to this number of characters."""
MAX_PAYLOAD_DEPTH: Final = 6
MAX_TOKENS: Final = 8_000
"""Maximum number of indexed words of one entry; bounds the postings of a 256 KiB payload."""

MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u0816-\u082d\u0859-\u085b\u0898-\u08e1\u08e3-\u0963"
    "\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d"
    "\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc"
    "\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u17dd\u180b-\u180d\u180f-\u193b\u302a-\u302f"
    "\u3099-\u309a"
)
"""Character class of combining marks (Unicode categories Mn and Mc) of scripts in use; ``\\w`` does not match them, so
it would split words of Hindi, Thai or Arabic at every vowel.
"""

COMMIT_PREFIX: Final = 7
"""Minimum number of hexadecimal digits that name a commit (git's default)."""
MIN_PART: Final = 3
"""Minimum length of an indexed part, in characters."""
MAX_PARTS: Final = 12
"""Maximum number of parts of an identifier; a word with more parts is encoded data."""
MAX_IDENTIFIER: Final = 64

_HEX: Final = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}")
_INNER: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces (Thai, Lao, Burmese, Khmer, Japanese, Chinese), and Korean, which joins particles to words."""
_RUN: Final = re.compile(rf"[{_UNSPACED}{MARKS}]+|[^{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")
_MARKED_END: Final = "\u0700"
"""First code point above the scripts (Latin, Greek, Cyrillic, Hebrew, Arabic) that are often written without their marks."""
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
    if text.isascii():  # folding ASCII moves no word boundary
        return _ASCII_WORD.findall(text.casefold())
    return [word.casefold() for word in words_of(text)]


def parts_of(word: str) -> tuple[str, ...]:
    """Folded parts under which a word is indexed in addition to its own term; empty for most words.

    ``OOMKilled`` → ``oom``, ``killed``; ``E4711`` → ``4711``; a commit hash → its first seven digits; a run of a script
    without spaces → its pairs of characters, and its ideographs; ``café`` → ``cafe``.

    Args:
        word: The word as written, in NFKC.
    """
    if word.isascii():
        if (word.isalpha() and (word[1:].islower() or word.isupper())) or word.isdecimal():
            return ()
        return tuple(_of_identifier(word))
    return tuple(_of_script(word.casefold()))


def pairs_of(word: str) -> list[str]:
    """The parts of a folded word with which a query finds text without spaces; empty for words of other scripts.

    A single character is its own part.
    """
    if word.isascii() or _IS_UNSPACED.search(word) is None:
        return []
    return [part for run in _RUN.findall(word) for part in (_pairs(run) or [run] if _IS_UNSPACED.match(run) else [run])]


def spaceless_chars(text: str) -> int:
    """How many characters of a text are of scripts without spaces, in which a character is about a token."""
    return 0 if text.isascii() else len(_IS_UNSPACED.findall(text))


def without_marks(word: str) -> str:
    """A folded word without its accents; unchanged in scripts in which a mark makes a different letter."""
    if word.isascii() or max(word) >= _MARKED_END:
        return word
    letters = (ch if "\u0400" <= ch < "\u0530" else unicodedata.normalize("NFD", ch) for ch in word.replace("ё", "е"))
    return "".join(ch for part in letters for ch in part if unicodedata.category(ch) != "Mn")


def _of_identifier(word: str) -> Iterator[str]:
    if len(word) > MAX_IDENTIFIER:
        return
    if is_hex(word):
        if len(word) > COMMIT_PREFIX:
            yield word[:COMMIT_PREFIX].lower()
        return
    parts = _INNER.findall(word)
    if 1 < len(parts) <= MAX_PARTS:
        yield from (part.lower() for part in parts if len(part) >= MIN_PART)


def is_hex(word: str) -> bool:
    """Whether a word may be (part of) a commit hash: at least seven hexadecimal digits, both letters and figures."""
    return _HEX.fullmatch(word.lower()) is not None


def _of_script(word: str) -> Iterator[str]:
    bare = without_marks(word)
    if bare != word:
        yield bare
    if _IS_UNSPACED.search(word) is None:
        return
    for run in _RUN.findall(word):
        if not _IS_UNSPACED.match(run):
            yield run
            continue
        if run != word or len(run) > 2:
            yield from _pairs(run) or [run]
        if len(run) > 1:
            yield from (ch for ch in run if "\u3400" <= ch <= "\u9fff")


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


class Analyzer:
    """Maps words to 64-bit term keys, with a bounded cache.

    Args:
        stemmer_of: Returns the stemmer of a Snowball algorithm.
        cache_size: Words in the cache, which is emptied when full.
    """

    def __init__(self, stemmer_of: StemmerOf, cache_size: int = 200_000) -> None:
        self._stemmer_of = stemmer_of
        self._english = stemmer_of(STEMMER)
        self._foreign: dict[str, WordStemmer] = {}
        self._cache_size = cache_size
        self._keys: dict[str, int] = dict.fromkeys(STOP_WORDS, 0)
        self._parts: dict[str, list[int]] = {}

    def terms(self, text: str) -> list[int]:
        """The term key of every word of ``text``, in order, without stop words."""
        return [key for key in self.keys_of(tokens_of(text)) if key]

    def phrase_terms(self, text: str) -> list[int]:
        """The term keys that every entry with the phrase ``text`` has; character pairs in scripts without spaces."""
        return [
            key
            for key in self.keys_of([part for token in tokens_of(text) for part in pairs_of(token) or [token]])
            if key
        ]

    def further_terms(self, text: str) -> list[int]:
        """The key of every further term of ``text``: first of the parts of its words, then of the stems of its language."""
        words = words_of(text)
        return self._further(words, list(map(str.casefold, words)))

    def keys_in(self, text: str, *, stops: bool) -> list[int]:
        """``terms``, ``further_terms`` and with ``stops`` the ``stop_keys`` of ``text``, which is cut into words once."""
        words = words_of(text)
        tokens = list(map(str.casefold, words))
        own = list(filter(None, self.keys_of(tokens)))
        return own + self._further(words, tokens) + (_stop_keys(tokens) if stops else [])

    def _further(self, words: list[str], tokens: list[str]) -> list[int]:
        parts: list[int] = []
        for word in words:
            if (keys := self._parts.get(word)) is None:
                if len(self._parts) >= self._cache_size:
                    self._parts.clear()
                keys = self._parts[word] = self.part_keys(word)
            if keys:
                parts += keys
        language = foreign_language(tokens)
        return parts if language is None else parts + [key for key in self.foreign_keys(tokens, language) if key]

    @staticmethod
    def stop_keys(text: str) -> list[int]:
        """The key of every English stop word of ``text``, in order; these keys differ from the keys of all terms."""
        return _stop_keys(tokens_of(text))

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
        """The term keys of the parts of a word as written; empty for most words."""
        parts = parts_of(word)
        return [key for key in self.keys_of(list(parts)) if key] if parts else []

    def foreign_keys(self, tokens: list[str], language: ForeignLanguage) -> list[int]:
        """The key of each folded word's stem in a language; 0 for a stop word, or if the key equals the word's term key."""
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


def _stop_keys(tokens: list[str]) -> list[int]:
    return [_stop_key(token) for token in tokens if token in STOP_WORDS]


@cache
def _stop_key(word: str) -> int:
    return hash64(_STOP + word)


def _key(stem: str) -> int:
    return hash64(stem) or 1


def date_prefix(ts_ms: int) -> str:
    """The day as ``7 May 2023``, so that a question that names the day finds the entry (+.02 recall, facts/retrieval.md)."""
    day = from_ms(ts_ms)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def with_named_months(text: str) -> str:
    """``text`` in which dates like 2026-11-21 or 2026-11 are written in the format of ``date_prefix``."""
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
