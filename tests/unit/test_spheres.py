"""Which entries may retire or contradict each other: one mission, one person, no keyed store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.ids import is_id
from crew_journal.schemas.relations.rules import ITEM, RECORD, Sphere, is_slot, slot

NAMES = st.none() | st.sampled_from(["ada", "ben", ""])


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Sphere(), Sphere(), True),
        (Sphere("m1", "ada", "t1"), Sphere("m1", "ada", "t2"), True),
        (Sphere("m1"), Sphere("m2"), False),
        (Sphere("m1"), Sphere(), False),
        (Sphere("m1", "ada"), Sphere("m1", "ben"), False),
        (Sphere("m1", "ada"), Sphere("m1"), False),
        (Sphere("m1", None, slot(ITEM, "k")), Sphere("m1", None, slot(ITEM, "k")), False),
        (Sphere("m1", None, slot(RECORD, "k")), Sphere("m1"), False),
        (Sphere("m1", None, "item_7"), Sphere("m1"), True),
    ],
)
def test_mission_and_person_must_be_the_same_and_a_keyed_store_stays_apart(
    one: Sphere, other: Sphere, meet: bool
) -> None:
    assert one.meets(other) is meet
    assert other.meets(one) is meet


@given(NAMES, NAMES, NAMES, NAMES)
def test_two_missions_or_persons_never_meet(
    mine: str | None, me: str | None, theirs: str | None, them: str | None
) -> None:
    assert Sphere(mine, me).meets(Sphere(theirs, them)) is ((mine, me) == (theirs, them))


@given(st.text(max_size=50))
def test_a_slot_is_an_id_and_is_recognised(key: str) -> None:
    for kind in (ITEM, RECORD):
        assert is_id(slot(kind, key))
        assert is_slot(slot(kind, key))


def test_the_slots_of_entries_that_are_stored_already_stay_the_same() -> None:
    assert slot(ITEM, '["users", "zoe", "tea"]') == "item_4b78e8a2a1b225023634a5f5e4d98943"
    assert slot(RECORD, "tea") == "record_a9f74d1ec36ebdeb2da3f6e5868090cd"
