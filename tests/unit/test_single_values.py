"""Which predicates have one object per subject at a time."""

from __future__ import annotations

import pytest

from crew_journal.schemas.facts.rules import LEAST_SUBJECTS, counted, is_single

ONE_EACH = {f"s{n}": 1 for n in range(LEAST_SUBJECTS)}


@pytest.mark.parametrize(
    "predicate", ["price", "has_price", "lives in", "is made of", "release_date", "kostet", "coûte"]
)
def test_attributes_and_places_have_one_object(predicate: str) -> None:
    assert is_single(predicate)


@pytest.mark.parametrize("predicate", ["uses", "knows", "is_a", "depends_on", "has", "nutzt"])
def test_declared_lists_have_several_whatever_the_facts_say(predicate: str) -> None:
    assert not is_single(predicate, ONE_EACH)


def test_the_facts_decide_about_other_predicates_once_there_are_enough() -> None:
    assert is_single("orbits", ONE_EACH)
    assert not is_single("orbits", dict(list(ONE_EACH.items())[1:]))
    assert not is_single("orbits", {**ONE_EACH, "s0": 2})
    assert not is_single("orbits")


def test_equal_facts_count_once() -> None:
    assert counted([("a", "x"), ("a", "x"), ("a", "y"), ("b", "x")]) == {"a": 2, "b": 1}
