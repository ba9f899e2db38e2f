"""Finds the days that a text names: "yesterday", "last Friday", "two weeks ago", "May 2023".

docs/adr/0008-turns.md explains why this module uses no library. Invariant: pure; days are counted from 1970-01-01
(UTC), intervals are closed. A change of the rules is a new ``turns.VERSION``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from .languages import DatePattern, Language

MAX_TEXT: Final = 2_000
"""Only this many characters of a text are searched; the maximum length of a summary."""
_ERA_DAYS: Final = 146_097
_EPOCH_SHIFT: Final = 719_468
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STEPS: Final = {"previous": -1, "this": 0, "following": 1}


class Days(NamedTuple):
    """A closed interval of days since 1970-01-01."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """The number of days."""
        return self.last - self.first + 1


def days_named(folded: str, own_day: int, language: Language) -> list[Days]:
    """The intervals that a text names. Each part of the text is used once, by the most specific pattern.

    Args:
        folded: The text, folded (``analyzer.fold``).
        own_day: The day of the text, in days since 1970-01-01; relative dates count from it.
        language: Language of the text.
    """
    return list(_read(folded[:MAX_TEXT], own_day, language.dates, language))


def explicit_days(folded: str, language: Language) -> list[Days]:
    """The intervals that a text names with a year, which do not depend on the day of the text."""
    dates = [kind for kind in language.dates if kind.rule == "date" and "year" in kind.pattern.groupindex]
    return list(_read(folded[:MAX_TEXT], None, dates, language))


def days_asked(folded: str, own_day: int, language: Language) -> Days | None:
    """The past or future time that a question is about, if it names one date or distance in time.

    Weekdays and "today", "this week", "next month" do not count: they usually say when something recurs or is planned,
    not to which time the question refers.
    """
    kinds = [kind for kind in language.dates if kind.rule in _OF_REFERENCE or (kind.rule == "day" and kind.offset < 0)]
    kinds = [kind for kind in kinds if "weekday" not in kind.pattern.groupindex]
    days = next(_read(folded[:MAX_TEXT], own_day, kinds, language), None)
    if days is None or days.length < _PARTED:
        return days
    third = days.length // 3
    if language.begins.search(folded):
        return Days(days.first, days.first + third)
    return Days(days.last - third, days.last) if language.closes.search(folded) else days


_PARTED: Final = 20
"""Minimum length in days of an interval of which "early" and "late" name a part."""
_OF_REFERENCE: Final = frozenset(["date", "ago", "previous"])


def _read(
    folded: str, own_day: int | None, kinds: tuple[DatePattern, ...] | list[DatePattern], language: Language
) -> Iterator[Days]:
    spans: list[tuple[int, int]] = []
    if not any(map(folded.__contains__, language.date_needs)):
        return
    for kind in kinds:
        if not any(map(folded.__contains__, kind.needs)):
            continue
        for match in kind.pattern.finditer(folded):
            begin, end = match.span()
            if any(begin < last and first < end for first, last in spans):
                continue
            days = _days(kind, match.groupdict(), own_day, language)
            if days is not None:
                spans.append((begin, end))
                yield days


def _days(kind: DatePattern, parts: Mapping[str, str | None], own_day: int | None, language: Language) -> Days | None:
    if kind.rule == "date":
        return _date(parts, own_day, language)
    if own_day is None:
        return None
    if kind.rule == "day":
        return Days(own_day + kind.offset, own_day + kind.offset)
    if (weekday := parts.get("weekday")) is not None:
        return _weekday(kind.rule, language.weekdays[weekday], own_day)
    unit = language.units[parts["unit"] or ""]
    number = parts.get("n")
    if number is None:
        return _calendar(unit, _STEPS[kind.rule], own_day)
    count = int(number) if number.isdecimal() else language.numbers[number]
    return _distant(unit, -count if kind.rule == "ago" else count, own_day)


def _weekday(rule: str, weekday: int, own_day: int) -> Days:
    """The nearest such weekday before the day of the text ("on Friday", "last Friday"), or after it ("next Friday")."""
    today = (own_day + 3) % 7  # 1970-01-01 was a Thursday
    back, ahead = (today - weekday - 1) % 7 + 1, (weekday - today - 1) % 7 + 1
    day = own_day - back if rule == "previous" else own_day + ahead
    return Days(day, day)


def _calendar(unit: str, step: int, own_day: int) -> Days:
    """The calendar week, month or year before, around or after the day of the text."""
    if unit == "day":
        return Days(own_day + step, own_day + step)
    monday = own_day - (own_day + 3) % 7 + 7 * step
    if unit == "week":
        return Days(monday, monday + 6)
    if unit == "weekend":
        return Days(monday + 5, monday + 6)
    year, month, _ = civil(own_day)
    if unit == "month":
        return _month(*divmod(year * 12 + month - 1 + step, 12))
    return _year(year + step)


def _distant(unit: str, count: int, own_day: int) -> Days:
    """The interval that lies ``count`` units from the day of the text; longer units give wider intervals."""
    if unit == "day":
        return Days(own_day + count, own_day + count)
    if unit in ("week", "weekend"):
        return Days(own_day + 7 * count - 3, own_day + 7 * count + 3)
    return _calendar(unit, count, own_day)


def _date(parts: Mapping[str, str | None], own_day: int | None, language: Language) -> Days | None:
    month_name, numbered, stated_year = parts.get("month"), parts.get("month_number"), parts.get("year")
    month = language.months[month_name] if month_name else int(numbered) if numbered else 0
    if stated_year:
        year = int(stated_year)
    elif own_day is None:
        return None
    else:
        year = _nearest_year(month, own_day)
    if not month:
        return _year(year)
    if month > 12:
        return None
    if day := parts.get("day"):
        if int(day) > month_length(year, month):
            return None
        at = days_from_civil(year, month, int(day))
        return Days(at, at)
    return _month(year, month - 1)


def _nearest_year(month: int, own_day: int) -> int:
    """The year in which a month that is named without a year lies nearest to the day of the text."""
    year, own_month, _ = civil(own_day)
    return year - (month - own_month > 6) + (month - own_month < -6)


def _year(year: int) -> Days:
    return Days(days_from_civil(year, 1, 1), days_from_civil(year, 12, 31))


def _month(year: int, month_from_0: int) -> Days:
    first = days_from_civil(year, month_from_0 + 1, 1)
    return Days(first, first + month_length(year, month_from_0 + 1) - 1)


def month_length(year: int, month: int) -> int:
    """Number of days of a month (1..12)."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month - 1] + (month == 2 and leap)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar, for any year.

    Source: Hinnant, "chrono-compatible low-level date algorithms".
    """
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_SHIFT


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day; inverse of ``days_from_civil``."""
    era, of_era = divmod(day + _EPOCH_SHIFT, _ERA_DAYS)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1
