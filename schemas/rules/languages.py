"""What rules know of a language, as data: ``language/<code>.json``, English first.

Invariant: read once, from the package alone; a changed word or pattern is a new ``turns.VERSION`` and a rebuild of the
view that depends on it. Patterns match text that is folded as the full-text index folds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from .text import fold

CODES: Final = ("en", "de")
"""In this order a tie is settled: a text that tells nothing is taken as English."""

CLEARLY_SHOWN: Final = 2
"""Different function words by which a text shows its language clearly; many a German one is a word of English, too."""
_DAY: Final = r"(?:3[01]|[12]\d|0?[1-9])"
_YEAR: Final = r"(?:19|20)\d\d"


@dataclass(frozen=True, slots=True)
class DatePattern:
    """One way to name a day or a span of days.

    Attributes:
        rule: How ``dates`` resolves it: day, ago, ahead, previous, this, following or date.
        offset: Days from the text's own day, for ``day``.
        pattern: Compiled, over folded text.
        needs: A text that holds none of these does not match: a search of each pattern costs 3 µs a text, these 0.2.
    """

    rule: str
    offset: int
    pattern: re.Pattern[str]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    Attributes:
        code: ISO 639-1.
        function_words: Words by which a text shows its language.
        first_person: Words with which a speaker means himself or his group.
        number_words: Words that state a number, digits aside.
        time_words: Words of which a time expression has at least one; names of months (those that are no other word)
            and weekdays among them.
        numbers: Number word → number, in expressions such as "two weeks ago".
        months: Name → 1..12.
        ambiguous_months: Names of months that are other words too ("may", "march"): a time only within a date.
        weekdays: Name → 0 (Monday)..6.
        units: Word → day, week, weekend, month or year.
        dates: Ways to name days, the more specific first.
        asks_when: Matches a question for a time.
        asks_number: Matches a question for a number.
        asks_assistant: Matches a question for what the assistant said or did, and no request to do something now.
        opens_question: Words with which a question or a request begins.
        subjects: Words that make a sentence of a list of words: pronouns, and verbs that have few forms.
        asks_indirectly: Matches a sentence that asks without a question mark ("I wonder where").
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
    opens_question: frozenset[str]
    subjects: frozenset[str]
    asks_indirectly: re.Pattern[str]


@cache
def languages() -> tuple[Language, ...]:
    """Every language there is data for, in order of ``CODES``."""
    folder = resources.files("crew_journal.schemas").joinpath("language")
    return tuple(_read(json.loads(folder.joinpath(f"{code}.json").read_text("utf-8"))) for code in CODES)


def language_of(words: Sequence[str]) -> Language:
    """The language of a text by its folded words: the one with most function words; the first at a tie."""
    return max(languages(), key=lambda language: sum(word in language.function_words for word in words))


def function_words_of(words: Sequence[str]) -> frozenset[str]:
    """The function words of a text's language, where the text shows clearly enough that it is not English; else none.

    For queries: the full-text index leaves out English stop words alone, so "du" and "ich" of a German question would
    be looked up like any other word. One such word ("war room", "die size") shows nothing yet.
    """
    language = language_of(words)
    if language.code == CODES[0] or sum(word in language.function_words for word in set(words)) < CLEARLY_SHOWN:
        return frozenset()
    return language.function_words


def _read(data: dict[str, Any]) -> Language:
    months = {fold(name): number for name, number in data["months"].items()}
    weekdays = {fold(name): number for name, number in data["weekdays"].items()}
    units = {fold(name): unit for name, unit in data["units"].items()}
    numbers = {fold(name): number for name, number in data["numbers"].items()}
    words = {
        "NUMBER": rf"(?:\d{{1,2}}|{_any(numbers)})",
        "UNIT": f"(?:{_any(units)})",
        "WEEKDAY": f"(?:{_any(weekdays)})",
        "MONTH": f"(?:{_any(months)})",
        "DAY": _DAY,
        "YEAR": _YEAR,
    }
    stems = {"WEEKDAY": _stems(weekdays), "MONTH": _stems(months)}
    ambiguous = _folded(data["ambiguous_months"])
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
        dates=tuple(
            DatePattern(
                one["rule"],
                one.get("offset", 0),
                _compiled(one["pattern"], words),
                tuple(stem for need in one["needs"] for stem in stems.get(need, (need,))),
            )
            for one in data["dates"]
        ),
        asks_when=re.compile(data["asks_when"]),
        asks_number=re.compile(data["asks_number"]),
        asks_assistant=re.compile(data["asks_assistant"]),
        opens_question=_folded(data["opens_question"]),
        subjects=_folded(data["subjects"]),
        asks_indirectly=re.compile(data["asks_indirectly"]),
    )


def _compiled(pattern: str, words: Mapping[str, str]) -> re.Pattern[str]:
    expanded = re.sub(r"[A-Z]{3,}", lambda found: words[found[0]], pattern)
    return re.compile(rf"(?<!\w)(?:{expanded})(?!\w)")


def _any(words: Mapping[str, object]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _stems(words: Collection[str]) -> list[str]:
    """The fewest of ``words`` of which every one of them holds at least one."""
    return [word for word in words if not any(other in word for other in words if other != word)]


def _folded(words: list[str]) -> frozenset[str]:
    return frozenset(map(fold, words))
