"""Splits text for the contradiction rule: into sentences of tokens, with numbers joined to their units and negations marked.

Invariant: pure; all spellings of a value (``30s``, ``30 seconds``, ``0.5 min``) have the same key, and a token keeps
its spelling for people.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, Final

from .analyzer import fold

# The words that the contradiction rule knows, English and German, folded; ``sentences.toml`` describes each list.


_DATA: Final[dict[str, Any]] = tomllib.loads(resources.files(__package__).joinpath("sentences.toml").read_text("utf-8"))


def _words(name: str) -> frozenset[str]:
    return frozenset(_DATA[name].split())


DROPPED: Final = _words("dropped")
NEGATIONS: Final = _words("negations")
UPDATES: Final = _words("updates")
UPDATE_PHRASES: Final[tuple[str, ...]] = tuple(_DATA["update_phrases"])
HEDGES: Final = _words("hedges")
YET: Final = _words("yet")
APPROXIMATE: Final = _words("approximate")
COPULAS: Final = _words("copulas")
PREPOSITIONS: Final = _words("prepositions")
LABELS: Final = _words("labels")
ATTRIBUTES: Final = _words("attributes")
PLACES: Final[tuple[str, ...]] = tuple(_DATA["places"])
FUNCTIONS: Final[tuple[str, ...]] = tuple(_DATA["functions"])
ENTITIES: Final = _words("entities")
STABLE: Final = _words("stable")
VOLATILE: Final = _words("volatile")
EVENTS: Final = _words("events")
HOLDING: Final = _words("holding")
SCHEDULES: Final = _words("schedules")
OPPOSITES: Final = frozenset(frozenset(pair.split("/")) for pair in _words("opposites"))
MOMENTARY: Final = _words("momentary")
MONTHS: Final = "|".join(_DATA["months"].split())
WEEKDAYS: Final = _words("weekdays")
ALIASES: Final[dict[str, str]] = _DATA["aliases"]
NUMERALS: Final = {word: int(number) for number, words in _DATA["numerals"].items() for word in words.split()}
UNITS: Final[dict[str, tuple[str, float]]] = {
    word: (measure, size)
    for measure, units in _DATA["units"].items()
    for spellings, size in units.items()
    for word in spellings.split()
}
"""Unit → the measure, and its value in the base unit of that measure."""

MAX_CHARS: Final = 2_000
"""Maximum number of characters of a text that are compared; the maximum length of a summary."""
MAX_SENTENCES: Final = 32
MAX_TOKENS: Final = 64
"""Maximum tokens of a text and of a sentence; longer ones are not compared, because alignment takes quadratic time."""


class TokenKind(StrEnum):
    """The kind of a token."""

    WORD = "word"
    NUMBER = "number"
    VERSION = "version"
    DATE = "date"
    NEGATION = "negation"


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        key: The form that is compared.
        kind: Its kind.
        shown: Its spelling, folded.
        value: Value of a number in its base unit, else 0.
        measure: What the number measures (time, bytes …), empty if the number has no unit.
    """

    key: str
    kind: TokenKind
    shown: str
    value: float = 0.0
    measure: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence: its tokens, and whether it is a question."""

    tokens: tuple[Token, ...]
    asks: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are compared, in order."""
        return tuple(token.key for token in self.tokens)


_SENTENCE_END: Final = re.compile(rf"(?<=[^\d\s][.!?;])\s+|(?<=\d[!?;])\s+|(?<=\d\.)\s+(?!(?:{MONTHS})\b)|\s*::\s*|\n+")
_CONTRACTED: Final = (
    (re.compile(r"\b(can|could|should|would|will|do|does|did|is|are|was|were|has|have|had|must)n['’]t\b"), r"\1 not"),
    (re.compile(r"\bwon['’]t\b"), "will not"),
    (re.compile(r"\bcan['’]t\b"), "can not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bwithout\b"), "not with"),
    (re.compile(r"\bohne\b"), "nicht mit"),
    (re.compile(r"\b(it|that|there|what|who|he|she)['’]s\b"), r"\1 is"),
    (re.compile(r"['’]s\b"), ""),
)
_TOKEN: Final = re.compile(
    rf"""(?P<date>\d{{4}}-\d{{2}}-\d{{2}}(?:t\d\d:\d\d\S*)?|\d{{1,2}}\.?\ (?:{MONTHS})\b(?:\ \d{{4}})?
            |(?:{MONTHS})\ \d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\ \d{{4}})?|\d{{1,2}}\.\d{{1,2}}\.\d{{4}}
            |\d{{1,2}}:\d{{2}}(?::\d{{2}})?)
      |(?P<version>v\d+(?:\.\d+)*\b|\d+(?:\.\d+){{2,}}(?:-[a-z0-9.]+)?)
      |(?P<currency>[$€])\s?(?P<amount>\d+(?:[.,]\d+)*)
      |(?P<number>[-−]?\d+(?:[.,]\d+)*)(?:(?P<glued>[a-zµ]+\b|\ ?[%€$])|\ (?P<unit>[a-z]+)\b)?
      |(?P<word>[^\W\d_]\w*(?:[-./@_]\w+)*)
      |(?P<sign>[:=\#])""",
    re.VERBOSE,
)
_GROUPED: Final = re.compile(r"\d{1,3}(?:[.,]\d{3})+\Z")


def values_of(text: str) -> set[str]:
    """The keys of the numbers, versions, dates, weekdays and negations of a whole text of any length."""
    return {token.key for token in _tokens(_folded(text)) if token.kind is not TokenKind.WORD}


def sentences_of(text: str) -> list[Sentence]:
    """The non-empty sentences of a text."""
    sentences = []
    for part in _SENTENCE_END.split(_folded(text[:MAX_CHARS])):
        tokens = tuple(_tokens(part))
        if 0 < len(tokens) <= MAX_TOKENS:
            sentences.append(Sentence(tokens, part.rstrip().endswith("?")))
    return sentences[:MAX_SENTENCES]


def stem(word: str) -> str:
    """A word without the ``s`` of plural and third person, with synonyms replaced by one common word."""
    word = ALIASES.get(word, word)
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _folded(text: str) -> str:
    folded = fold(text)
    for pattern, plain in _CONTRACTED:
        folded = pattern.sub(plain, folded)
    return folded


def _tokens(text: str) -> Iterator[Token]:
    place = 0
    before = ""
    while (match := _TOKEN.search(text, place)) is not None:
        place = match.end()
        spelling = match.group()
        if match["word"] is not None:
            word = match["word"]
            if word in DROPPED:
                continue
            if word in NEGATIONS and before not in (":", "="):
                yield Token("not", TokenKind.NEGATION, word)
            elif word in NUMERALS:
                yield _number(str(NUMERALS[word]), "", spelling)
            elif word in WEEKDAYS:
                yield Token(stem(word), TokenKind.DATE, spelling)
            else:
                yield Token(stem(word), TokenKind.WORD, spelling)
        elif match["date"] is not None:
            yield Token(match["date"].replace(".", ". ").replace("  ", " "), TokenKind.DATE, spelling)
        elif match["version"] is not None:
            yield Token(match["version"].removeprefix("v"), TokenKind.VERSION, spelling)
        elif match["currency"] is not None:
            yield _number(match["amount"], match["currency"], spelling)
        elif match["number"] is not None:
            unit = (match["glued"] or match["unit"] or "").strip()
            if unit and unit not in UNITS:
                if match["glued"]:
                    yield Token(spelling, TokenKind.WORD, spelling)  # 3rd, 2x, 4k: a word that begins with a digit
                    before = spelling
                    continue
                place = match.end("number")
                spelling, unit = match["number"], ""
            yield _number(match["number"], unit, spelling)
        else:
            yield Token(spelling, TokenKind.WORD, spelling)
        before = spelling


def _number(digits: str, unit: str, spelling: str) -> Token:
    plain = digits.replace("−", "-")
    if _GROUPED.match(plain.lstrip("-")):
        plain = plain.replace(",", "").replace(".", "")
    elif plain.count(",") == 1 and "." not in plain:
        plain = plain.replace(",", ".")
    else:
        plain = plain.replace(",", "")
    try:
        value = float(plain)
    except ValueError:
        return Token(spelling, TokenKind.VERSION, spelling)
    measure, factor = UNITS.get(unit, ("", 1.0))
    base = round(value * factor, 9)
    return Token(f"{base!r} {measure}".rstrip(), TokenKind.NUMBER, spelling, base, measure)
