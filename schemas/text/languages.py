"""Word lists and patterns of each language, read from ``language/<code>.json``.

Invariant: a changed word or pattern is a new ``turns.VERSION`` and a rebuild of the view of turns. Patterns match
folded text (``analyzer.fold``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from .analyzer import fold

CODES: Final = ("en", "de")
"""In order of precedence: a text without function words counts as English."""

_DAY: Final = r"(?:3[01]|[12]\d|0?[1-9])"
_YEAR: Final = r"(?:19|20)\d\d"


@dataclass(frozen=True, slots=True)
class DatePattern:
    """One way to name a day or a span of days.

    Attributes:
        rule: How ``dates`` resolves a match: day, ago, ahead, previous, this, following or date.
        offset: For ``day``: days from the day of the text.
        pattern: Compiled, over folded text.
        needs: A text without any of these substrings cannot match. This check takes 0.2 µs, the pattern 3 µs.
    """

    rule: str
    offset: int
    pattern: re.Pattern[str]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    Attributes:
        time_words: Words of time expressions, including weekdays and unambiguous months.
        numbers: Number word → number, in expressions such as "two weeks ago".
        months: Name → 1..12.
        ambiguous_months: Names of months that are also other words ("may", "march"); they count as months only within a
            date.
        weekdays: Name → 0 (Monday)..6.
        asks_assistant: Matches a question about what the assistant said or did, but not a request to do something.
        addresses: A text without any of these substrings does not match ``asks_assistant``.
        date_needs: A text without any of these substrings matches no pattern of ``dates``.
        opens_question: Words with which a question or a request begins.
        subjects: Words that distinguish a sentence from a list of keywords: pronouns, and verbs that have few forms.
        asks_indirectly: Matches a sentence that asks without a question mark ("I wonder where").
        begins: Matches words for the first part of a month or year ("early").
        closes: Matches words for the last part of a month or year ("late").
    """

    code: str
    function_words: frozenset[str]
    first_person: frozenset[str]
    number_words: frozenset[str]
    time_words: frozenset[str]
    numbers: Mapping[str, int]
    months: Mapping[str, int]
    ambiguous_months: frozenset[str]
    weekdays: Mapping[str, int]
    units: Mapping[str, str]
    dates: tuple[DatePattern, ...]
    asks_when: re.Pattern[str]
    asks_number: re.Pattern[str]
    asks_assistant: re.Pattern[str]
    addresses: tuple[str, ...]
    date_needs: tuple[str, ...]
    opens_question: frozenset[str]
    subjects: frozenset[str]
    asks_indirectly: re.Pattern[str]
    begins: re.Pattern[str]
    closes: re.Pattern[str]


@cache
def languages() -> tuple[Language, ...]:
    """All languages, in the order of ``CODES``."""
    folder = resources.files(__package__).joinpath("language")
    return tuple(_read(json.loads(folder.joinpath(f"{code}.json").read_text("utf-8"))) for code in CODES)


def language_of(words: Sequence[str]) -> Language:
    """The language with most function words among the folded words of a text; the first one at a tie."""
    return max(languages(), key=lambda language: sum(map(language.function_words.__contains__, words)))


def _read(data: dict[str, Any]) -> Language:
    months = {fold(name): number for name, number in data["months"].items()}
    weekdays = {fold(name): number for name, number in data["weekdays"].items()}
    units = {fold(name): unit for name, unit in data["units"].items()}
    numbers = {fold(name): number for name, number in data["numbers"].items()}
    words = {
        "NUMBER": rf"(?:\d{{1,2}}|{_alternatives(numbers)})",
        "UNIT": f"(?:{_alternatives(units)})",
        "WEEKDAY": f"(?:{_alternatives(weekdays)})",
        "MONTH": f"(?:{_alternatives(months)})",
        "DAY": _DAY,
        "YEAR": _YEAR,
    }
    stems = {"WEEKDAY": _stems(weekdays), "MONTH": _stems(months)}
    ambiguous = _folded(data["ambiguous_months"])
    dates = tuple(
        DatePattern(
            entry["rule"],
            entry.get("offset", 0),
            _compiled(entry["pattern"], words),
            tuple(stem for need in entry["needs"] for stem in stems.get(need, (need,))),
        )
        for entry in data["dates"]
    )
    return Language(
        code=data["code"],
        function_words=_folded(data["function_words"]),
        first_person=_folded(data["first_person"]),
        number_words=_folded(data["number_words"]),
        time_words=_folded(data["time_words"]) | (months.keys() - ambiguous) | weekdays.keys(),
        numbers=numbers,
        months=months,
        ambiguous_months=ambiguous,
        weekdays=weekdays,
        units=units,
        dates=dates,
        asks_when=re.compile(data["asks_when"]),
        asks_number=re.compile(data["asks_number"]),
        asks_assistant=re.compile(data["asks_assistant"]),
        addresses=tuple(data["addresses"]),
        date_needs=tuple(dict.fromkeys(need for kind in dates for need in kind.needs)),
        opens_question=_folded(data["opens_question"]),
        subjects=_folded(data["subjects"]),
        asks_indirectly=re.compile(data["asks_indirectly"]),
        begins=re.compile(data["begins"]),
        closes=re.compile(data["closes"]),
    )


def _compiled(pattern: str, words: Mapping[str, str]) -> re.Pattern[str]:
    expanded = re.sub(r"[A-Z]{3,}", lambda match: words[match[0]], pattern)
    return re.compile(rf"(?<!\w)(?:{expanded})(?!\w)")


def _alternatives(words: Mapping[str, object]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _stems(words: Collection[str]) -> list[str]:
    """The smallest subset of ``words`` such that each word contains one of them."""
    return [word for word in words if not any(other in word for other in words if other != word)]


def _folded(words: list[str]) -> frozenset[str]:
    return frozenset(map(fold, words))
