"""The nearest earlier entries: numeric examples of the contract, and a plain search to compare with."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import MODEL, index_of, recorded, vector_fact

from crew_journal.schemas.core.envelope import VectorDerived
from crew_journal.schemas.core.ports import ENTRY_KIND, NearQuery
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.similar import sought

Row = tuple[list[float], dict[str, Any]]


def journal(*rows: Row, model: str = MODEL) -> tuple[HotIndex, list[VectorDerived]]:
    events = [recorded(seq, "x", entry_type="peer.escalation", **fields) for seq, (_, fields) in enumerate(rows, 1)]
    facts = [vector_fact(event, values, model=model) for event, (values, _) in zip(events, rows, strict=True)]
    return index_of(events, facts), facts


def query_of(fact: VectorDerived, k: int = 3, least: float = 0.8) -> NearQuery:
    vectors = [fact.vector]
    return NearQuery(
        ENTRY_KIND, fact.workspace_id, fact.model, k, least, vectors, entry_seq=fact.entry_seq, before=fact.seq
    )


def found(index: HotIndex, fact: VectorDerived, k: int = 3, threshold: float = 0.8) -> list[tuple[str, float]]:
    asked = sought(index, query_of(fact, k, threshold), fact.vector)
    near = asked.nearest(asked.compared(), k) if asked is not None else []
    return [(one.item, round(one.cosine, 6)) for one in near]


def at_cosine(value: float, **fields: Any) -> Row:
    return [value, math.sqrt(1 - value * value), 0.0], fields


SELF: Row = ([1.0, 0.0, 0.0], {})


def test_the_best_three_from_080_on_are_near() -> None:
    """Contract §7: cosine ≥ 0.8, best three; exactly 0.8 counts."""
    index, facts = journal(at_cosine(0.81), at_cosine(0.8), at_cosine(0.79999), at_cosine(0.95), at_cosine(0.9), SELF)
    assert found(index, facts[-1]) == [("e4", 0.95), ("e5", 0.9), ("e1", 0.81)]
    assert found(index, facts[-1], k=9) == [("e4", 0.95), ("e5", 0.9), ("e1", 0.81), ("e2", 0.8)]


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5, 2.0, math.nan, math.inf])
def test_a_threshold_outside_0_to_1_counts_as_080(threshold: float) -> None:
    """Contract §7: threshold outside (0,1] → 0.8."""
    index, facts = journal(at_cosine(0.81), at_cosine(0.7), SELF)
    assert found(index, facts[-1], threshold=threshold) == [("e1", 0.81)]


def test_a_threshold_of_one_wants_the_same_direction_and_no_cosine_exceeds_one() -> None:
    index, facts = journal(at_cosine(0.9999), ([2.0, 0.0, 0.0], {}), ([0.1, 0.1, 0.1], {}), ([0.3, 0.3, 0.3], {}), SELF)
    assert found(index, facts[-1], threshold=1.0) == [("e2", 1.0)]
    assert found(index, facts[3], threshold=0.5)[0] == ("e3", 1.0)


def test_only_vectors_whose_facts_came_before_count() -> None:
    index, facts = journal(SELF, SELF, SELF)
    assert found(index, facts[0]) == []
    assert found(index, facts[1]) == [("e1", 1.0)]
    assert found(index, facts[2]) == [("e2", 1.0), ("e1", 1.0)] or found(index, facts[2]) == [("e1", 1.0), ("e2", 1.0)]


def test_equal_cosines_come_newer_first_then_by_id() -> None:
    early, late = "2026-11-21T09:00:00.000Z", "2026-11-21T10:00:00.000Z"
    rows: list[Row] = [([1.0, 0.0, 0.0], {"ts": ts}) for ts in (early, late, early, late)]
    index, facts = journal(*rows, SELF)
    assert [name for name, _ in found(index, facts[-1], k=4)] == ["e2", "e4", "e1", "e3"]


def test_crews_stay_apart_and_entries_without_a_crew_meet_only_each_other() -> None:
    """Contract §7: same crew; crew-less only with crew-less."""
    index, facts = journal(
        ([1.0, 0.0, 0.0], {"crew_id": "c1"}),
        ([1.0, 0.0, 0.0], {"crew_id": "c2"}),
        ([1.0, 0.0, 0.0], {"crew_id": None}),
        ([1.0, 0.0, 0.0], {"crew_id": "c1"}),
        ([1.0, 0.0, 0.0], {"crew_id": None}),
    )
    assert found(index, facts[3]) == [("e1", 1.0)]
    assert found(index, facts[4]) == [("e3", 1.0)]


def test_facts_of_another_model_and_unequal_lengths_have_no_neighbours() -> None:
    index, facts = journal(SELF, SELF)
    other = vector_fact(recorded(2, "x"), [1.0, 0.0, 0.0], model="another")
    longer = vector_fact(recorded(2, "x"), [1.0, 0.0, 0.0, 0.0])
    assert found(index, other) == found(index, longer) == []
    unknown = vector_fact(recorded(77, "x"), [1.0, 0.0, 0.0])
    assert found(index, unknown) == []
    assert found(index, facts[1]) == [("e1", 1.0)]


def test_a_tombstone_is_nobodys_neighbour() -> None:
    index, facts = journal(SELF, ([], {}), SELF)
    assert found(index, facts[-1]) == [("e1", 1.0)]


COMPONENTS = st.lists(st.integers(-2, 2), min_size=3, max_size=3)


@given(
    st.lists(st.tuples(COMPONENTS, st.sampled_from(["c1", None])), min_size=1, max_size=12),
    st.sampled_from([0.3, 0.8]),
    st.integers(1, 4),
)
def test_it_finds_what_a_plain_search_finds(rows: list[tuple[list[int], str | None]], threshold: float, k: int) -> None:
    index, facts = journal(*(([float(x) for x in values], {"crew_id": crew}) for values, crew in rows))
    (own, crew), before = rows[-1], rows[:-1]
    norm = math.sqrt(sum(x * x for x in own))
    cosines = {}
    for number, (values, theirs) in enumerate(before, 1):
        length = math.sqrt(sum(x * x for x in values))
        cosine = sum(a * b for a, b in zip(own, values, strict=True)) / (norm * length) if norm and length else 0.0
        if theirs == crew and cosine >= threshold - 1e-6:
            cosines[f"e{number}"] = cosine
    result = found(index, facts[-1], k, threshold)
    assert len(result) == min(k, len(cosines))
    assert all(abs(cosines[name] - cosine) < 1e-5 for name, cosine in result)
    rest = [cosine for name, cosine in cosines.items() if name not in dict(result)]
    assert not rest or max(rest) <= min(cosine for _, cosine in result) + 1e-5


def test_vectors_replaced_or_taken_back_while_the_comparison_runs_are_left_out() -> None:
    """The comparison runs in a thread; what the matrix says afterwards decides, as if it had been asked a moment later."""
    index, facts = journal(SELF, SELF, SELF, SELF)
    before = sought(index, query_of(facts[3]), facts[3].vector)
    assert before is not None
    near = before.compared()
    assert index.vectors is not None
    index.vectors.put(0, b"", facts[3].seq + 1)
    index.vectors.put(1, facts[1].vector, facts[3].seq + 2)
    assert [one.item for one in before.nearest(near, 3)] == ["e3"]
