"""Days that texts and questions name, in five languages, and the calendar beneath."""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crew_journal.schemas.text.analyzer import fold, tokens_of
from crew_journal.schemas.text.dates import (
    Days,
    civil,
    days_asked,
    days_from_civil,
    days_named,
    explicit_days,
    month_length,
    periods_asked,
)
from crew_journal.schemas.text.languages import DatePattern, date_language_of, date_languages

LANGUAGES = {language.code: language for language in date_languages()}
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
    assert named("On 7 May 2023 and the day before yesterday", "en") == [span("2023-05-07"), span("2023-05-08")]


def test_a_query_is_explicit_only_with_a_year() -> None:
    english = LANGUAGES["en"]
    assert explicit_days("what happened in august 2023?", english) == [span("2023-08-01", "2023-08-31")]
    assert explicit_days("the week before august 3, 2023", english) == [span("2023-08-03")]
    assert explicit_days("during 2022", english) == [span("2022-01-01", "2022-12-31")]
    assert explicit_days("what happened yesterday, on friday or in august?", english) == []


NOVEMBER = (date(2026, 11, 16) - EPOCH).days


def asked(text: str) -> list[Days]:
    """The periods of a question that is asked on Monday, 16 November 2026."""
    return periods_asked(fold(text), NOVEMBER, date_language_of(tokens_of(text)))


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What did we decide in March?", "2026-03-01", "2026-03-31"),
        ("What did we decide in December 2024?", "2024-12-01", "2024-12-31"),
        ("What happened in mid-March?", "2026-03-11", "2026-03-20"),
        ("What happened in early 2024?", "2024-01-01", "2024-05-01"),
        ("Where was I in the last week of March?", "2026-03-25", "2026-03-31"),
        ("Where was I in the first week of May 2025?", "2025-05-01", "2025-05-07"),
        ("Who called on 10.01.2024?", "2024-01-10", "2024-01-10"),
        ("Who called on 1/2/2024?", "2024-01-02", "2024-01-02"),
        ("What did we ship in Q3?", "2026-07-01", "2026-09-30"),
        ("What did we ship in the fourth quarter of 2024?", "2024-10-01", "2024-12-31"),
        ("What did we ship in Q4?", "2026-10-01", "2026-12-31"),
        ("What did I buy in March last year?", "2025-03-01", "2025-03-31"),
        ("What did I buy in the last two weeks?", "2026-10-30", "2026-11-16"),
        ("What has changed since March?", "2026-03-01", "2026-11-16"),
        ("What happened from May to July?", "2026-05-01", "2026-07-31"),
        ("What happened between March 3 and March 10?", "2026-03-03", "2026-03-10"),
        ("What happened from December 20 to January 5?", "2025-12-20", "2026-01-05"),
        ("What happened on March 3-7, 2024?", "2024-03-03", "2024-03-07"),
        ("What is planned for next March?", "2027-03-01", "2027-03-31"),
        ("What did he do on the three Wednesday nights in October?", "2026-10-01", "2026-10-31"),
        ("Was haben wir Mitte März beschlossen?", "2026-03-11", "2026-03-20"),
        ("Was war in der letzten Woche im März?", "2026-03-25", "2026-03-31"),
        ("Was war im dritten Quartal 2025 geplant?", "2025-07-01", "2025-09-30"),
        ("Wer hat am 10.01.2024 angerufen?", "2024-01-10", "2024-01-10"),
        ("Was war im November des letzten Jahres?", "2025-11-01", "2025-11-30"),
        ("Qu'est-ce que nous avons décidé à la mi-mars ?", "2026-03-11", "2026-03-20"),
        ("Qui est venu la première semaine de mai dans le bureau ?", "2026-05-01", "2026-05-07"),
        ("Que s'est-il passé dans le projet il y a deux semaines ?", "2026-10-30", "2026-11-05"),
        ("¿Qué hicimos a mediados de marzo con los clientes?", "2026-03-11", "2026-03-20"),
        ("¿Qué pasó en la última semana de marzo de 2025 con el coche?", "2025-03-25", "2025-03-31"),
        ("雷明轩在1月中旬做了什么？", "2026-01-11", "2026-01-20"),
        ("十一月上旬我们讨论了什么？", "2026-11-01", "2026-11-10"),
        ("2025年第三季度的重点是什么？", "2025-07-01", "2025-09-30"),
        ("去年3月谁来过？", "2025-03-01", "2025-03-31"),
        ("8月9日的晨跑因何取消？", "2026-08-09", "2026-08-09"),
    ],
)
def test_a_question_is_about_the_latest_past_time_of_the_name(question: str, first: str, last: str) -> None:
    assert asked(question) == [span(first, last)]


def test_a_date_that_lies_near_ahead_may_be_meant_as_well() -> None:
    assert asked("What is on 20 November?") == [span("2026-11-20"), span("2025-11-20")]
    assert asked("What is on in December?") == [span("2026-12-01", "2026-12-31"), span("2025-12-01", "2025-12-31")]


def test_two_days_are_two_periods() -> None:
    assert asked("What happened on February 12th and February 23rd?") == [span("2026-02-12"), span("2026-02-23")]


MAY, JUNE, AUGUST = span("2026-05-01", "2026-05-31"), span("2026-06-01", "2026-06-30"), span("2026-08-01", "2026-08-31")


@pytest.mark.parametrize(
    ("question", "periods"),
    [
        ("Which brands did he recommend during May and August?", [MAY, AUGUST]),
        ("What did I spend in May, June and August?", [MAY, JUNE, AUGUST]),
        (
            "What did I spend in May and June 2024?",
            [span("2024-05-01", "2024-05-31"), span("2024-06-01", "2024-06-30")],
        ),
        ("What did I spend in May 2024 or June?", [span("2024-05-01", "2024-05-31"), span("2024-06-01", "2024-06-30")]),
        ("Where was I in 2024 and 2025?", [span("2024-01-01", "2024-12-31"), span("2025-01-01", "2025-12-31")]),
        ("What came in May, and may I ask from whom?", [MAY]),
        ("What came in May and August 3?", [MAY, span("2026-08-03")]),
        ("Was haben wir im Mai, Juni und August ausgegeben?", [MAY, JUNE, AUGUST]),
        ("Qu'est-ce que nous avons fait en mai et août dans le projet ?", [MAY, AUGUST]),
        ("¿Qué hicimos en mayo y agosto con los clientes?", [MAY, AUGUST]),
        ("沈洁在5月和8月推荐了什么？", [MAY, AUGUST]),
        ("沈洁在5月到8月推荐了什么？", [span("2026-05-01", "2026-08-31")]),
    ],
)
def test_the_months_and_years_of_a_list_are_periods_of_their_own(question: str, periods: list[Days]) -> None:
    assert asked(question) == periods


def test_what_held_in_a_month_is_asked_of_the_past_one() -> None:
    assert days_asked(fold("Who led the choir in March?"), NOVEMBER, LANGUAGES["en"]) == span(
        "2026-03-01", "2026-03-31"
    )


def test_what_holds_on_a_date_of_the_coming_weeks_is_asked_of_the_coming_one() -> None:
    english, asked = LANGUAGES["en"], span("2026-11-29").first
    assert days_asked(fold("When does Tilda swim on 11 December?"), asked, english) == span("2026-12-11")
    assert days_asked(fold("When did Tilda swim on 11 January?"), asked, english) == span("2026-01-11")


@given(st.text(max_size=200), st.integers(-800_000, 3_000_000), st.sampled_from(sorted(LANGUAGES)))
def test_the_periods_of_any_question_run_forward(text: str, own_day: int, code: str) -> None:
    for days in periods_asked(fold(text), own_day, LANGUAGES[code]):
        assert days.first <= days.last


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
@settings(max_examples=max(4, settings.default.max_examples // 4))
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
