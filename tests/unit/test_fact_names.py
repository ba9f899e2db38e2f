"""Names of entities and the dates of facts."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.facts.names import check_interval, entity_id, normal_date, span_of

DAY_S = 86_400


@pytest.mark.parametrize(
    ("one", "other"),
    [("Alice Smith", " alice  smith "), ("PostgreSQL", "postgresql"), ("Zoe\u0308", "ZO\u00cb"), ("AWS", "aws")],
)
def test_case_and_blanks_do_not_tell_entities_apart(one: str, other: str) -> None:
    assert entity_id(one) == entity_id(other)


def test_punctuation_tells_entities_apart() -> None:
    assert entity_id("O'Brien") != entity_id("OBrien")


def test_an_id_is_the_name_and_eight_digits_of_its_hash() -> None:
    digest = hashlib.sha256(b"crawbl backend").hexdigest()[:8]
    assert entity_id("Crawbl Backend") == f"e_crawbl_backend_{digest}"


@given(st.text(min_size=1, max_size=300))
def test_an_id_has_at_most_32_characters_of_the_name(name: str) -> None:
    assert len(entity_id(name)) <= 2 + 32 + 1 + 8


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2026-11-21", "2026-11-21"),
        ("2024-02-29", "2024-02-29"),
        ("2026-11-21T09:30:00Z", "2026-11-21T09:30:00Z"),
        ("2026-11-21T09:30:00+00:00", "2026-11-21T09:30:00Z"),
    ],
)
def test_a_full_date_and_a_utc_time_to_the_second_are_accepted(text: str, normal: str) -> None:
    assert normal_date(text) == normal
    assert span_of(text) == span_of(normal)


@pytest.mark.parametrize(
    "text",
    [
        "2026",
        "2026-11",
        "2026-1-2",
        "2026-02-29",
        "2026-13-01",
        "0000-01-01",
        "2026-11-21T09:30Z",
        "2026-11-21T09:30:00",
        "2026-11-21T09:30:00.5Z",
        "2026-11-21T09:30:00+01:00",
        "2026-11-21 09:30:00Z",
        "2026-11-21T24:00:01Z",
        "２026-11-21",
        "2026-11-21\n",
        "yesterday",
        "",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="date"):
        normal_date(text)


def test_a_date_covers_its_day_and_a_time_its_second() -> None:
    day = span_of("2026-11-21")
    assert day.last_ms - day.first_ms == (DAY_S - 1) * 1_000
    assert span_of("2026-11-21T00:00:00Z") == (day.first_ms, day.first_ms)
    assert span_of("2026-11-21T23:59:59Z") == (day.last_ms, day.last_ms)


def test_an_end_may_equal_the_start_and_not_precede_it() -> None:
    check_interval("2026-11-21", "2026-11-21")
    check_interval("2026-11-21T10:00:00Z", "2026-11-21")  # a date as end is the end of its day
    check_interval(None, "2026-11-21")
    for start, end in (("2026-11-21", "2026-11-20"), ("2026-11-21T10:00:00Z", "2026-11-21T09:59:59Z")):
        with pytest.raises(ValueError, match="before the start"):
            check_interval(start, end)
