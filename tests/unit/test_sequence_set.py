"""A set of sequences and ids has one text, bounded parts, and nothing is lost between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crew_journal.schemas.core.entry import MAX_ENTRY_BYTES
from crew_journal.schemas.core.sequence_set import (
    MAX_IDS,
    MAX_SEQUENCE,
    SequenceSet,
    format_ranges,
    in_parts,
    parse_ranges,
    ranges_of,
    size_of,
    without,
)
from crew_journal.schemas.entries.events import ErasureScoped, LossAccepted

SETS = st.sets(st.integers(1, 60))


def members(made: SequenceSet) -> list[int]:
    """Every sequence of a set, ascending."""
    return [seq for first, last in made.ranges for seq in range(first, last + 1)]


@given(SETS)
def test_a_set_reads_back_from_its_text(sequences: set[int]) -> None:
    made = SequenceSet(sequences=format_ranges(ranges_of(sequences)))
    assert members(made) == sorted(sequences)
    assert {seq for seq in range(70) if seq in made} == sequences
    assert size_of(made.ranges) == len(sequences)


@given(SETS, SETS)
def test_union_and_difference_are_those_of_sets(one: set[int], other: set[int]) -> None:
    mine, theirs = (SequenceSet(sequences=format_ranges(ranges_of(of))) for of in (one, other))
    assert set(members(mine.union(theirs))) == one | other
    assert without(ranges_of(one), ranges_of(other)) == ranges_of(one - other)


@given(SETS, st.sets(st.sampled_from([f"e{n}" for n in range(30)])))
def test_parts_are_bounded_and_hold_the_whole_set(sequences: set[int], ids: set[str]) -> None:
    parts = in_parts(ranges_of(sequences), ids, max_text=12, max_ids=3)
    assert all(len(part.sequences) <= 12 and len(part.ids) <= 3 for part in parts)
    assert parts[0].union(*parts[1:]) == SequenceSet(
        sequences=format_ranges(ranges_of(sequences)), ids=tuple(sorted(ids))
    )


@pytest.mark.parametrize(
    "text", ["0", "-1", "1-", "2-1", "1-1", "1,2", "1-3,4", "3,1", "1,1", "01", " 1", "1,", "1;3", "1.0", "²", "9" * 20]
)
def test_what_is_not_the_one_text_of_a_set_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        SequenceSet(sequences=text)


def test_ids_ascend_and_occur_once() -> None:
    for ids in (("b", "a"), ("a", "a")):
        with pytest.raises(ValidationError):
            SequenceSet(ids=ids)


def test_a_full_part_stays_far_below_the_size_of_an_entry() -> None:
    far = MAX_SEQUENCE - 20_000
    parts = in_parts(ranges_of(range(far, MAX_SEQUENCE, 2)), [f"{n:064}" for n in range(3 * MAX_IDS)])
    assert len(parts) >= 3
    payload = ErasureScoped(erasure_id="e_1", scope=parts[0], reason="x" * 500, part=1, parts=len(parts))
    assert len(payload.model_dump_json()) < MAX_ENTRY_BYTES * 0.6
    assert parse_ranges(parts[0].sequences)


def test_a_part_is_one_of_its_parts() -> None:
    with pytest.raises(ValidationError):
        LossAccepted(loss_id="l_1", lost=SequenceSet(sequences="1"), part=2, parts=1)
