"""Finds the days that a text names: "yesterday", "last Friday", "two weeks ago", "May 2023".

docs/adr/0008-turns.md explains why this module uses no library. Invariant: pure; days are counted from 1970-01-01
(UTC), intervals are closed. A change of the rules is a new ``turns.VERSION``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from .languages import DateLanguage, DatePattern

MAX_TEXT: Final = 2_000
"""Only this many characters of a text are searched; the maximum length of a summary."""
_ERA_DAYS: Final = 146_097
_EPOCH_SHIFT: Final = 719_468
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WORD: Final = re.compile(r"\w+")
_STEPS: Final = {"previous": -1, "this": 0, "following": 1}


class Days(NamedTuple):
    """A closed interval of days since 1970-01-01."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """The number of days."""
        return self.last - self.first + 1


class _Named(NamedTuple):
    """A stretch of a text that names days."""

    begin: int
    end: int
    kind: DatePattern
    days: Days
    upcoming: Days | None = None
    """The same date in the next year, if no year is named and that lies near ahead."""


def days_named(folded: str, own_day: int, language: DateLanguage) -> list[Days]:
    """The intervals that a text names. Each part of the text is used once, by the most specific pattern.

    Args:
        folded: The text, folded (``analyzer.fold``).
        own_day: The day of the text, in days since 1970-01-01; relative dates count from it, and a date without a year is
            in the nearest one.
        language: Language of the text.
    """
    return [named.days for named in _read(folded[:MAX_TEXT], own_day, language.dates, language)]


def periods_asked(folded: str, own_day: int | None, language: DateLanguage) -> list[Days]:
    """The periods that a question is about, in the order of its text.

    A date without a year lies in the past, as memories do; if the same date lies at most ``SOON`` days ahead, that is meant
    as well. Two dates with "to" between them are the whole time from the first to the second one, "in May and August" are
    two times, and "since" reaches to the day of the question. A weekday counts only if there is no other date ("on
    Wednesday nights in November").

    Args:
        folded: The question, folded (``analyzer.fold``).
        own_day: Its day, days since 1970-01-01; None if that is not known, where only dates with a year are read.
        language: Its language.
    """
    if own_day is None:
        return explicit_days(folded, language)
    found = sorted(_read(folded[:MAX_TEXT], own_day, language.dates, language, past=True))
    if any("weekday" not in named.kind.pattern.groupindex for named in found):
        found = [named for named in found if "weekday" not in named.kind.pattern.groupindex]
    periods: list[Days] = []
    before: _Named | None = None
    for named in (each for first in found for each in _listed(first, folded, own_day, language)):
        joint = None if before is None else folded[before.end : named.begin]
        if before is not None and joint is not None and _is_range(joint, folded[: before.begin], language):
            first = before.days.first
            if first > named.days.last:  # "from December to February"
                year, month, day = civil(first)
                first = days_from_civil(year - 1, month, min(day, month_length(year - 1, month)))
            periods[-1:] = [Days(first, named.days.last)]
        elif language.since.search(folded[: named.begin]) or language.since.match(folded[named.begin : named.end]):
            periods.append(Days(named.days.first, max(named.days.last, own_day)))
        else:
            periods += [named.days] if named.upcoming is None else [named.upcoming, named.days]
        before = named
    return periods


def _listed(first: _Named, folded: str, own_day: int, language: DateLanguage) -> Iterator[_Named]:
    """A date and, if it is a month or year that begins a list, the others of the list ("in May, June and August 2024")."""
    of = first.kind.pattern.groupindex
    rest = None if first.kind.rule != "date" or "day" in of else language.listed.match(folded, first.end)
    if rest is None:
        yield first
        return
    named = [word for word in _WORD.findall(rest[0]) if word in language.months or word.isdecimal()]
    own = _WORD.findall(folded[first.begin : first.end])
    year = rest["year"] or (own[-1] if own[-1].isdecimal() else None)
    if rest["year"]:
        del named[-2:]  # they are a date of their own
        if not own[-1].isdecimal():
            named.insert(0, own[-1])
    else:
        yield first
    for word in named:
        parts = {"year": word} if word.isdecimal() else {"month": word, "year": year}
        if days := _days(first.kind, parts, own_day, language, past=True):
            upcoming = _upcoming(first.kind, parts, own_day, language, days)
            yield _Named(rest.end(), rest.end(), first.kind, days, upcoming)


def _is_range(joint: str, before: str, language: DateLanguage) -> bool:
    if language.until.fullmatch(joint):
        return True
    return language.between.search(before) is not None and language.conjunction.fullmatch(joint) is not None


def explicit_days(folded: str, language: DateLanguage) -> list[Days]:
    """The intervals that a text names with a year, which do not depend on the day of the text."""
    dates = [kind for kind in language.dates if kind.rule in _OF_YEAR and "year" in kind.pattern.groupindex]
    return [named.days for named in _read(folded[:MAX_TEXT], None, dates, language)]


def days_asked(folded: str, own_day: int, language: DateLanguage) -> Days | None:
    """The past or future time that a question is about, if it names one date or distance in time.

    A date without a year is the coming one if that lies at most ``SOON`` days ahead ("who is on duty on 3 December",
    asked in November), else the latest past one.

    Weekdays and "today", "this week", "next month" do not count: they usually say when something recurs or is planned,
    not to which time the question refers.
    """
    kinds = (
        kind
        for kind in language.dates
        if (kind.rule in _OF_REFERENCE or (kind.rule == "day" and kind.offset < 0))
        and "weekday" not in kind.pattern.groupindex
    )
    named = next(_read(folded[:MAX_TEXT], own_day, kinds, language, past=True), None)
    return None if named is None else named.upcoming or named.days


SOON: Final = 31
"""Days ahead within which a date without a year may be the coming one."""
_OF_YEAR: Final = frozenset(["date", "quarter", "coming"])
_OF_REFERENCE: Final = frozenset(["date", "quarter", "coming", "ago", "previous"])


def _read(
    folded: str,
    own_day: int | None,
    kinds: Iterable[DatePattern],
    language: DateLanguage,
    *,
    past: bool = False,
) -> Iterator[_Named]:
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
            parts = match.groupdict()
            days = _days(kind, parts, own_day, language, past)
            if days is not None:
                spans.append((begin, end))
                yield _Named(begin, end, kind, days, _upcoming(kind, parts, own_day, language, days) if past else None)


def _upcoming(
    kind: DatePattern, parts: Mapping[str, str | None], own_day: int | None, language: DateLanguage, past: Days
) -> Days | None:
    """The same date in the next year, if that begins at most ``SOON`` days ahead."""
    if kind.rule not in _OF_YEAR or own_day is None or parts.get("year") or parts.get("stated"):
        return None
    year, _, _ = civil(past.first)
    days = _days(kind, {**parts, "year": str(year + 1)}, own_day, language, past=False)
    return days if days is not None and days.first > own_day and days.first - own_day <= SOON else None


def _days(
    kind: DatePattern, parts: Mapping[str, str | None], own_day: int | None, language: DateLanguage, past: bool
) -> Days | None:
    if kind.rule in _OF_YEAR:
        return _of_year(kind, parts, own_day, language, past)
    if own_day is None:
        return None
    if kind.rule == "day":
        return Days(own_day + kind.offset, own_day + kind.offset)
    if (weekday := parts.get("weekday")) is not None:
        return _weekday(kind.rule, language.weekdays[weekday], own_day)
    unit = kind.unit or language.units[parts["unit"] or parts["last_unit"] or ""]
    number = parts.get("n")
    if number is None and not kind.count:
        return _calendar(unit, _STEPS[kind.rule], own_day)
    count = kind.count or (int(number) if number and number.isdecimal() else language.numbers[number or ""])
    if kind.rule == "within":
        return Days(_distant(unit, -count, own_day).first, own_day)
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


def _of_year(
    kind: DatePattern, parts: Mapping[str, str | None], own_day: int | None, language: DateLanguage, past: bool
) -> Days | None:
    """A day, month, quarter or year, or a part of one, in the year that is named, or in the one that fits."""
    if year := parts.get("year"):
        return _in_year(kind, parts, int(year), language)
    if own_day is None:
        return None
    own_year, own_month, _ = civil(own_day)
    if stated := parts.get("stated"):
        return _in_year(kind, parts, own_year + language.years[stated], language)
    if kind.rule == "coming":
        days = _in_year(kind, parts, own_year, language)
        return days if days is not None and days.last >= own_day else _in_year(kind, parts, own_year + 1, language)
    if past:
        days = _in_year(kind, parts, own_year, language)
        return days if days is not None and days.first <= own_day else _in_year(kind, parts, own_year - 1, language)
    month = _month_of(kind, parts, language)
    year_of = own_year - (month - own_month > 6) + (month - own_month < -6)  # the nearest one
    return _in_year(kind, parts, year_of, language)


def _month_of(kind: DatePattern, parts: Mapping[str, str | None], language: DateLanguage) -> int:
    """The (first) month that is named; 0 if none is."""
    if kind.rule == "quarter":
        return 3 * language.quarters[parts["quarter"] or ""] - 2
    name, numbered = parts.get("month"), parts.get("month_number")
    return language.months[name] if name else int(numbered) if numbered else 0


def _last_month(parts: Mapping[str, str | None], language: DateLanguage) -> int:
    name, numbered = parts.get("last_month"), parts.get("last_month_number")
    return language.months[name] if name else int(numbered) if numbered else 0


def _in_year(kind: DatePattern, parts: Mapping[str, str | None], year: int, language: DateLanguage) -> Days | None:
    month = _month_of(kind, parts, language)
    if month > 12:
        return None
    if day := parts.get("day"):
        last = parts.get("last_day") or day
        if not int(day) <= int(last) <= month_length(year, month):
            return None
        return Days(days_from_civil(year, month, int(day)), days_from_civil(year, month, int(last)))
    if kind.rule == "quarter":
        whole = Days(_month(year, month - 1).first, _month(year, month + 1).last)
    elif last_month := _last_month(parts, language):
        if last_month > 12:
            return None
        whole = Days(_month(year - (last_month < month), month - 1).first, _month(year, last_month - 1).last)
    else:
        whole = _month(year, month - 1) if month else _year(year)
    part = parts.get("part")
    return _part(whole, language.parts[part]) if part else whole


def _part(whole: Days, part: str) -> Days:
    """A part of a month, quarter or year: ``n/m`` for the n-th of m equal ones, a number for a week, -1 for the last."""
    number, _, of = part.partition("/")
    if of:
        size = whole.length // int(of)
        first = whole.first + (int(number) - 1) * size
        return Days(first, whole.last if number == of else first + size - 1)
    if number == "-1":
        return Days(whole.last - 6, whole.last)
    first = whole.first + 7 * (int(number) - 1)
    return Days(first, first + 6)


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
