"""Classifies a prompt: it asks the memory nothing, asks a question with a kind of answer, or describes a situation.

"Please continue" and "fix the typo" concern the current work, so no memory is relevant to them. A text without a time
does not answer a question about a time.

Invariant: pure; the words are in ``language/prompts.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any, Final

from ..text.analyzer import STOP_WORDS, fold, tokens_of
from ..text.languages import language_of, languages
from ..text.stop_words import foreign_words

_NAME: Final = re.compile(r"(?<![.!?:;\n])[ (\"“„]+([^\W\d_a-z][\w’'-]+)")
"""Matches a capitalised word inside a sentence. In German it matches every noun, which does no harm."""
_KEYWORDS: Final = 3
"""A text without a question mark and with at most this many words is a list of keywords."""
_OPENS: Final = 3
"""The verb of a request is among this many first words ("and now please sort …")."""
_MOST_WORDS: Final = 24
"""Maximum number of words of a prompt that asks nothing; longer prompts are not checked."""


class AnswerKind(Enum):
    """The kind of answer that a question asks for."""

    PERSON = "person"
    TIME = "time"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class _PromptWords:
    interrogatives: frozenset[str]
    at_hand: frozenset[str]
    topics: frozenset[str]
    edits: frozenset[str]
    deictics: frozenset[str]
    asks_to_do: re.Pattern[str]
    kinds: tuple[tuple[AnswerKind, re.Pattern[str]], ...]
    all: re.Pattern[str]
    many: re.Pattern[str]
    summary: re.Pattern[str]


@cache
def _words() -> _PromptWords:
    data = json.loads(resources.files("crew_journal.schemas").joinpath("text/language/prompts.json").read_text("utf-8"))
    patterns = ((AnswerKind.NUMBER, "number"), (AnswerKind.TIME, "when"), (AnswerKind.PERSON, "who"))
    edits, deictics = _all_words(data["edits"]), _all_words(data["deictics"])
    return _PromptWords(
        _all_words(data["interrogatives"]),
        _all_words(data["at_hand"]) | _all_words(data["courtesies"]) | edits | deictics | STOP_WORDS | foreign_words(),
        _all_words(data["topics"]),
        edits,
        deictics,
        re.compile(fold(data["asks_to_do"])),
        tuple((kind, re.compile(fold(data[name]))) for kind, name in patterns),
        re.compile(fold(data["all"])),
        re.compile(fold(data["many"])),
        re.compile(fold(data["summary"])),
    )


def _all_words(lists: dict[str, Any]) -> frozenset[str]:
    return frozenset(fold(word) for words in lists.values() for word in words)


def is_question(text: str) -> bool:
    """Whether a text asks something: by a question mark, its first word, or as a few keywords ("heap limit").

    "Could you …" is a request.
    """
    folded = fold(text).strip()
    if _words().asks_to_do.match(folded):
        return False
    return "?" in text or folded.split(" ", 1)[0] in _words().interrogatives or len(tokens_of(text)) <= _KEYWORDS


def asks_nothing(text: str) -> bool:
    """Whether a prompt is a courtesy or only concerns the current work ("make the second paragraph shorter")."""
    words, known = tokens_of(text), _words()
    if len(words) > _MOST_WORDS or "?" in text or (len(words) > _KEYWORDS and is_question(text)):
        return False
    content_words = [word for word in words if word not in known.at_hand]
    if not content_words:
        return not words or any(word not in known.topics and word not in STOP_WORDS for word in words)
    edits = not known.edits.isdisjoint(words[:_OPENS]) and not known.deictics.isdisjoint(words)
    return edits and len(content_words) == 1 and not any(map(str.isdecimal, text)) and _NAME.search(text) is None


def asked_kind(question: str) -> AnswerKind | None:
    """The kind of answer that a question asks for; None if every kind answers it."""
    folded = fold(question)
    return next((kind for kind, pattern in _words().kinds if pattern.search(folded)), None)


def asks_for_all(question: str) -> bool:
    """Whether a question needs many entries for its answer: it asks for a total, for all items, or whether a goal is met."""
    return _words().all.search(fold(question)) is not None


def asks_for_summary(question: str) -> bool:
    """Whether a question asks for a summary or an overview."""
    return _words().summary.search(fold(question)) is not None


def collects(question: str) -> bool:
    """Whether a question needs many entries: for a total, a list, an order, a course of things or a summary."""
    folded = fold(question)
    return _words().all.search(folded) is not None or _words().many.search(folded) is not None


def holds_kind(kind: AnswerKind, text: str, query_words: Collection[str]) -> bool:
    """Whether a text contains an answer of that kind that is not already in the question.

    Args:
        kind: The kind.
        text: The text.
        query_words: The folded words of the question.
    """
    if kind is AnswerKind.PERSON:
        first = text.split(" ", 1)[0]
        names = [first, *_NAME.findall(text)] if first[:1].isupper() else _NAME.findall(text)
        return any(fold(name) not in query_words and fold(name) not in STOP_WORDS for name in names)
    rest = [word for word in tokens_of(text) if word not in query_words]
    numbers = any(map(str.isdecimal, "".join(rest))) or any(map(_number_words().__contains__, rest))
    times = (word in _time_words() or word.removesuffix("s") in _time_words() for word in rest)  # "on Tuesdays"
    return numbers or (kind is AnswerKind.TIME and any(times))


@cache
def _number_words() -> frozenset[str]:
    return frozenset[str]().union(*(language.number_words for language in languages()))


@cache
def _time_words() -> frozenset[str]:
    return frozenset[str]().union(*(language.time_words for language in languages()))


# Decides whether a query is a question or a statement, such as "I am off to the airport with the kids".


LEAST_WORDS: Final = 3
"""Minimum number of words of a statement."""
_QUOTED: Final = re.compile(r"(?<![^\s(:,])(['\"“‘„«])(.+?)['\"”’“»](?=[\s.,;!?)]|$)", re.DOTALL)
_STATEMENTS_OPENS: Final = frozenset("'\"‘“„«")
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
    if _STATEMENTS_OPENS.isdisjoint(text):
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
