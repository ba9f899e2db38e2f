"""What two texts must have in common to say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.text.marks import same_marks


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Deploy day is Thursday", "Deploy day changes from Thursday to Tuesday"),
        ("Thursday is deploy day", "Tuesday is deploy day"),
        ("The invoice of 4 May is paid", "The invoice of 5 May is paid"),
        ("The token lasts 30 seconds", "The token lasts 30 minutes"),
        ("We run version 1.2.3", "We run version 1.2.4"),
        ("We talked to Ada", "We talked to Ben"),
        ("Ada owns the parser", "Ben owns the parser"),
        ("The parser is tested", "The parser isn't tested"),
        ("Der Test läuft", "Der Test läuft nicht"),
        ("Le test passe", "Le test ne passe plus"),
        ("It happens before lunch", "It happens after lunch"),
        ("x " * 90 + "costs 5 euros", "x " * 90 + "costs 6 euros"),
    ],
)
def test_texts_that_differ_in_one_mark_do_not_say_the_same(one: str, other: str) -> None:
    assert not same_marks(one, other)
    assert not same_marks(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Deploy day is Thursday.", "The deploy day is Thursday"),
        ("The token lasts 30s", "The token lasts 30 seconds"),
        ("The disk is full", "Our disk is full"),
        ("We went with DuckDB", "Went with DuckDB"),
        ("the disk of Ada ran over", "THE DISK OF ADA RAN OVER"),
        ("the disk ran over at night", "the disk ran at night"),
    ],
)
def test_other_words_leave_the_marks_the_same(one: str, other: str) -> None:
    assert same_marks(one, other)


@given(st.text(max_size=200))
def test_a_text_has_the_marks_of_itself(text: str) -> None:
    assert same_marks(text, text)
