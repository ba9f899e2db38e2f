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
from .stop_words import foreign_language

CODES: Final = ("en", "de")
"""In order of precedence: a text without function words counts as English."""

CHINESE: Final = "zh"
_HAN: Final = re.compile("[\u4e00-\u9fff]")
_DAY: Final = r"(?:3[01]|[12]\d|0?[1-9])"
_YEAR: Final = r"(?:19|20)\d\d"


@dataclass(frozen=True, slots=True)
class DatePattern:
    """One way to name a day or a span of days.

    Attributes:
        rule: How ``dates`` resolves a match: day, ago, ahead, within, previous, this, following, date or quarter.
        offset: For ``day``: days from the day of the text.
        unit: The unit, where the match does not name it ("去年"); empty if it does.
        count: How many units, likewise; 0 if it does.
        pattern: Compiled, over folded text.
        needs: A text without any of these substrings cannot match. This check takes 0.2 µs, the pattern 3 µs.
    """

    rule: str
    offset: int
    pattern: re.Pattern[str]
    needs: tuple[str, ...]
    unit: str = ""
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class DateLanguage:
    """How a language names dates.

    Attributes:
        numbers: Number word → number, in expressions such as "two weeks ago".
        months: Name → 1..12.
        weekdays: Name → 0 (Monday)..6.
        units: Word → day, week, weekend, month or year.
        parts: Words for a part of a month or year ("late", "first week of") → the part, as ``dates`` reads it.
        quarters: Words for a quarter of a year ("third") → 1..4.
        years: Words for a year by its distance ("last year") → years from now.
        dates: The patterns, the most specific first.
        date_needs: A text without any of these substrings matches no pattern of ``dates``.
        since: Matches words before a date from which on a time is meant, at the end of a text, or at the start of a date.
        until: Matches what stands between the first and the last date of a time.
        between: Matches words before the first of two dates that limit a time.
        conjunction: Matches what stands between these two.
        listed: Matches the rest of a list of months or years, after the first one; ``year`` if the last month has one.
    """

    code: str
    numbers: Mapping[str, int]
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    units: Mapping[str, str]
    parts: Mapping[str, str]
    quarters: Mapping[str, int]
    years: Mapping[str, int]
    dates: tuple[DatePattern, ...]
    date_needs: tuple[str, ...]
    since: re.Pattern[str]
    until: re.Pattern[str]
    between: re.Pattern[str]
    conjunction: re.Pattern[str]
    listed: re.Pattern[str]


@dataclass(frozen=True, kw_only=True)
class Language(DateLanguage):
    """One language.

    Attributes:
        time_words: Words of time expressions, including weekdays and unambiguous months.
        ambiguous_months: Names of months that are also other words ("may", "march"); they count as months only within a
            date.
        asks_assistant: Matches a question about what the assistant said or did, but not a request to do something.
        addresses: A text without any of these substrings does not match ``asks_assistant``.
        instructs: Matches a standing instruction or preference ("always … when I ask", "I prefer").
        instruction_needs: A text without any of these substrings does not match ``instructs``.
        asks_past: Matches a question about what happened or was said, which no standing instruction answers.
        opens_question: Words with which a question or a request begins.
        subjects: Words that distinguish a sentence from a list of keywords: pronouns, and verbs that have few forms.
        asks_indirectly: Matches a sentence that asks without a question mark ("I wonder where").
    """

    function_words: frozenset[str]
    first_person: frozenset[str]
    number_words: frozenset[str]
    time_words: frozenset[str]
    ambiguous_months: frozenset[str]
    asks_assistant: re.Pattern[str]
    addresses: tuple[str, ...]
    instructs: re.Pattern[str]
    instruction_needs: tuple[str, ...]
    asks_past: re.Pattern[str]
    opens_question: frozenset[str]
    subjects: frozenset[str]
    asks_indirectly: re.Pattern[str]


@cache
def languages() -> tuple[Language, ...]:
    """All languages, in the order of ``CODES``."""
    return tuple(_read(code) for code in CODES)


@cache
def date_languages() -> tuple[DateLanguage, ...]:
    """All languages in which dates are read: those of ``languages``, then those of ``dates.json``."""
    return (*languages(), *(DateLanguage(**_read_dates(code, data)) for code, data in _dates()["others"].items()))


def language_of(words: Sequence[str]) -> Language:
    """The language with most function words among the folded words of a text; the first one at a tie."""
    return max(languages(), key=lambda language: sum(map(language.function_words.__contains__, words)))


def date_language_of(words: Sequence[str]) -> DateLanguage:
    """The language in which the dates of a text with these folded words are read."""
    if any(map(_HAN.search, words)):
        return _by_code()[CHINESE]
    foreign = foreign_language(words)
    known = None if foreign is None else _by_code().get(foreign.code)
    return known or language_of(words)


@cache
def _by_code() -> dict[str, DateLanguage]:
    return {language.code: language for language in date_languages()}


def _data(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("language").joinpath(f"{name}.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@cache
def _dates() -> dict[str, Any]:
    return _data("dates")


def _read_dates(code: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a ``DateLanguage``."""
    maps = ("months", "weekdays", "units", "numbers", "parts", "years")
    by_name: dict[str, dict[str, Any]] = {
        name: {fold(key): value for key, value in data[name].items()} for name in maps
    }
    by_name["quarters"] = {**_dates()["quarters"], **{fold(key): value for key, value in data["quarters"].items()}}
    words = {
        "NUMBER": rf"(?:\d{{1,2}}|{_alternatives(by_name['numbers'])})",
        "DAY": _DAY,
        "YEAR": _YEAR,
        **{
            name: f"(?:{_alternatives(by_name[of])})"
            for name, of in (
                ("UNIT", "units"),
                ("WEEKDAY", "weekdays"),
                ("MONTH", "months"),
                ("PART", "parts"),
                ("QUARTER", "quarters"),
                ("STATED", "years"),
            )
        },
    }
    stems = {"WEEKDAY": _stems(by_name["weekdays"]), "MONTH": _stems(by_name["months"])}
    spaced = data.get("spaced", True)
    patterns = tuple(
        DatePattern(
            entry["rule"],
            entry.get("offset", 0),
            _compiled(entry["pattern"], words, spaced=spaced),
            tuple(stem for need in entry["needs"] for stem in stems.get(need, (need,))),
            entry.get("unit", ""),
            entry.get("count", 0),
        )
        for entry in (*_dates()["all"], *data["dates"])
    )
    joints = {name: re.compile(data[name]) for name in ("since", "until", "between", "conjunction")}
    joints["listed"] = re.compile(_expanded(data["listed"], words))
    needs = tuple(dict.fromkeys(need for kind in patterns for need in kind.needs))
    return {"code": code, **by_name, "dates": patterns, "date_needs": needs, **joints}


def _read(code: str) -> Language:
    data = _data(code)
    of_dates = _read_dates(code, {**data, **_dates()[code]})
    ambiguous = _folded(data["ambiguous_months"])
    return Language(
        **of_dates,
        function_words=_folded(data["function_words"]),
        first_person=_folded(data["first_person"]),
        number_words=_folded(data["number_words"]),
        time_words=_folded(data["time_words"]) | (of_dates["months"].keys() - ambiguous) | of_dates["weekdays"].keys(),
        ambiguous_months=ambiguous,
        asks_assistant=re.compile(data["asks_assistant"]),
        addresses=tuple(data["addresses"]),
        instructs=re.compile(data["instructs"]),
        instruction_needs=tuple(map(fold, data["instruction_needs"])),
        asks_past=re.compile(data["asks_past"]),
        opens_question=_folded(data["opens_question"]),
        subjects=_folded(data["subjects"]),
        asks_indirectly=re.compile(data["asks_indirectly"]),
    )


def _expanded(pattern: str, words: Mapping[str, str]) -> str:
    return re.sub(r"[A-Z]{3,}", lambda match: words[match[0]], pattern)


def _compiled(pattern: str, words: Mapping[str, str], *, spaced: bool) -> re.Pattern[str]:
    expanded = _expanded(pattern, words)
    return re.compile(rf"(?<!\w)(?:{expanded})(?!\w)" if spaced else rf"(?<![\da-z])(?:{expanded})(?![\da-z])")


def _alternatives(words: Mapping[str, object]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _stems(words: Collection[str]) -> list[str]:
    """The smallest subset of ``words`` such that each word contains one of them."""
    return [word for word in words if not any(other in word for other in words if other != word)]


def _folded(words: list[str]) -> frozenset[str]:
    return frozenset(map(fold, words))
