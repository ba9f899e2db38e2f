"""Days that texts name, in English and German, and the calendar beneath."""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.text.analyzer import fold
from crew_journal.schemas.text.dates import Days, civil, days_from_civil, days_named, explicit_days, month_length
from crew_journal.schemas.text.languages import DatePattern, languages

LANGUAGES = {language.code: language for language in languages()}
EPOCH = date(1970, 1, 1)
WEDNESDAY = (date(2023, 5, 10) - EPOCH).days


def span(first: str, last: str | None = None) -> Days:
    days = [(date.fromisoformat(day) - EPOCH).days for day in (first, last or first)]
    return Days(*days)


def named(text: str, code: str) -> list[Days]:
    return days_named(fold(text), WEDNESDAY, LANGUAGES[code])


@pytest.mark.parametrize(
    ("code", "text", "days"),
    [
        ("en", "I went there yesterday.", span("2023-05-09")),
        ("en", "The day before yesterday it rained", span("2023-05-08")),
        ("en", "see you tomorrow", span("2023-05-11")),
        ("en", "Last night was fun", span("2023-05-09")),
        ("en", "we met last Friday", span("2023-05-05")),
        ("en", "on Wednesday", span("2023-05-03")),
        ("en", "next Friday", span("2023-05-12")),
        ("en", "two weeks ago", span("2023-04-23", "2023-04-29")),
        ("en", "a couple of days ago", span("2023-05-08")),
        ("en", "3 months ago", span("2023-02-01", "2023-02-28")),
        ("en", "last week", span("2023-05-01", "2023-05-07")),
        ("en", "last weekend", span("2023-05-06", "2023-05-07")),
        ("en", "this month", span("2023-05-01", "2023-05-31")),
        ("en", "last month", span("2023-04-01", "2023-04-30")),
        ("en", "next month", span("2023-06-01", "2023-06-30")),
        ("en", "in May 2022", span("2022-05-01", "2022-05-31")),
        ("en", "on 7 May, 2023", span("2023-05-07")),
        ("en", "on May 7th", span("2023-05-07")),
        ("en", "in December", span("2022-12-01", "2022-12-31")),
        ("en", "since 2023-02-28", span("2023-02-28")),
        ("en", "due 2023-02-28T09:00:00Z", span("2023-02-28")),
        ("en", "in 2023-02", span("2023-02-01", "2023-02-28")),
        ("de", "Stand 2023-02", span("2023-02-01", "2023-02-28")),
        ("en", "last year", span("2022-01-01", "2022-12-31")),
        ("de", "Gestern war ich dort", span("2023-05-09")),
        ("de", "vor zwei Wochen", span("2023-04-23", "2023-04-29")),
        ("de", "letzten Freitag", span("2023-05-05")),
        ("de", "am Freitag", span("2023-05-05")),
        ("de", "nächsten Freitag", span("2023-05-12")),
        ("de", "letzte Woche", span("2023-05-01", "2023-05-07")),
        ("de", "im März 2022", span("2022-03-01", "2022-03-31")),
        ("de", "am 7. Mai 2023", span("2023-05-07")),
        ("de", "am 7.5.2023", span("2023-05-07")),
        ("de", "heute Morgen", span("2023-05-10")),
        ("de", "in drei Tagen", span("2023-05-13")),
    ],
)
def test_a_text_names_the_days_it_means(code: str, text: str, days: Days) -> None:
    assert named(text, code) == [days]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("en", "I may come, and we march on"),
        ("en", "2023-06-31"),
        ("en", "my day was long"),
        ("de", "Guten Morgen, die Woche war lang"),
        ("de", "am 31.6.2023"),
    ],
)
def test_a_text_without_a_date_names_no_day(code: str, text: str) -> None:
    assert named(text, code) == []


def test_each_stretch_of_text_is_read_once() -> None:
    assert named("On 7 May 2023 and the day before yesterday", "en") == [span("2023-05-08"), span("2023-05-07")]


def test_a_query_is_explicit_only_with_a_year() -> None:
    english = LANGUAGES["en"]
    assert explicit_days("what happened in august 2023?", english) == [span("2023-08-01", "2023-08-31")]
    assert explicit_days("the week before august 3, 2023", english) == [span("2023-08-03")]
    assert explicit_days("during 2022", english) == [span("2022-01-01", "2022-12-31")]
    assert explicit_days("what happened yesterday, on friday or in august?", english) == []


@given(st.dates())
def test_days_and_dates_are_inverse(day: date) -> None:
    number = (day - EPOCH).days
    assert civil(number) == (day.year, day.month, day.day)
    assert days_from_civil(day.year, day.month, day.day) == number


@given(st.dates(max_value=date(9999, 11, 30)))
def test_a_month_is_as_long_as_the_calendar_says(day: date) -> None:
    following = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
    assert month_length(day.year, day.month) == (following - day.replace(day=1)).days


@given(st.text(max_size=200), st.integers(-800_000, 3_000_000), st.sampled_from(sorted(LANGUAGES)))
def test_any_text_on_any_day_gives_intervals_that_run_forward(text: str, own_day: int, code: str) -> None:
    for days in days_named(fold(text), own_day, LANGUAGES[code]):
        assert days.first <= days.last


KINDS = [(code, kind) for code, language in sorted(LANGUAGES.items()) for kind in language.dates]


@pytest.mark.parametrize(("code", "kind"), KINDS, ids=[f"{code}:{kind.pattern.pattern[:60]}" for code, kind in KINDS])
@given(data=st.data())
def test_whatever_a_pattern_matches_holds_what_it_needs(code: str, kind: DatePattern, data: st.DataObject) -> None:
    bare = kind.pattern.pattern.replace(r"(?<!\w)", "").replace(r"(?!\w)", "")
    text = data.draw(st.from_regex(bare, fullmatch=True))
    if kind.pattern.search(text):
        assert any(need in text for need in kind.needs)


WORDS = [
    "in",
    "this",
    "last",
    "next",
    "the",
    "3",
    "7.",
    "of",
    "may",
    "mai",
    "2023",
    "week",
    "woche",
    "friday",
    "freitag",
]
WORDS += [
    "vor",
    "zwei",
    "two",
    "days",
    "tagen",
    "ago",
    "gestern",
    "today",
    "2023-02-28",
    "am",
    "7.5.2023",
    "märz,",
    "on",
]


@pytest.mark.parametrize("code", sorted(LANGUAGES))
@given(words=st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=12))
def test_leaving_out_patterns_that_cannot_match_changes_no_day(code: str, words: list[str]) -> None:
    text, language = fold(" ".join(words)), LANGUAGES[code]
    asking_all = replace(language, dates=tuple(replace(kind, needs=("",)) for kind in language.dates))
    assert days_named(text, WEDNESDAY, language) == days_named(text, WEDNESDAY, asking_all)
