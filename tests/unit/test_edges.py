"""Edges in memory behave as the view does, and walking along them shows nothing that is out of scope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import index_of, recorded

from crew_journal.schemas.rules.relations import Authority, RelationState, outweighs
from crew_journal.services.query.arms.walk import walk
from crew_journal.services.query.hot.edges import SimilarEdges, state_code
from crew_journal.services.query.hot.index import HotIndex
from crew_journal.services.query.hot.scope import Scope, ScopeKind

DERIVED, ASSERTED, RETRACTED = RelationState.DERIVED, RelationState.ASSERTED, RelationState.RETRACTED
REACTOR, AGENT, OPERATOR = Authority.REACTOR, Authority.AGENT, Authority.OPERATOR
Said = tuple[RelationState, Authority]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from([0.8, 0.9]),
        st.sampled_from(
            [(DERIVED, REACTOR), *((said, by) for said in (ASSERTED, RETRACTED) for by in (AGENT, OPERATOR))]
        ),
    ).filter(lambda event: event[0] != event[1]),
    max_size=25,
)


def shown(edges: SimilarEdges) -> dict[int, list[tuple[int, float]]]:
    return {doc: sorted(edges.neighbours(doc)) for doc in range(6)}


@given(EVENTS, st.integers(0, 25), st.integers(0, 25))
def test_loaded_half_way_and_told_everything_again_they_equal_those_that_followed(
    events: list[tuple[int, int, float, Said]], loaded_at: int, again_from: int
) -> None:
    followed = SimilarEdges()
    model: dict[frozenset[int], tuple[float, Said, int]] = {}
    stored: dict[frozenset[int], tuple[float, Said, int]] = {}
    for seq, (one, other, weight, said) in enumerate(events):
        followed.apply(one, other, weight, *said, seq)
        pair = frozenset((one, other))
        known = model.get(pair)
        if known is None:
            model[pair] = (weight, said, seq)
        elif outweighs(said[1], known[1][1]):
            model[pair] = (known[0] if said[0] is RETRACTED else weight, said, seq)
        if seq == loaded_at:
            stored = dict(model)
    stored = stored or (dict(model) if loaded_at >= len(events) else {})
    late = SimilarEdges()
    late.load(
        np.array([sorted(pair) for pair in stored], np.int32).reshape(-1, 2),
        np.array([weight for weight, _, _ in stored.values()], np.float64),
        np.array([state_code(state) for _, (state, _), _ in stored.values()], np.uint8),
        np.array([authority for _, (_, authority), _ in stored.values()], np.uint8),
        np.array([seq for _, _, seq in stored.values()], np.int64),
    )
    begin = min(again_from, loaded_at + 1) if stored else 0
    for seq, (one, other, weight, said) in list(enumerate(events))[begin:]:
        late.apply(one, other, weight, *said, seq)
    expected: dict[int, list[tuple[int, float]]] = {doc: [] for doc in range(6)}
    for pair, (weight, (state, _), _) in model.items():
        one, other = sorted(pair)
        if state is not RETRACTED:
            expected[one].append((other, weight))
            expected[other].append((one, weight))
    assert shown(followed) == shown(late) == {doc: sorted(found) for doc, found in expected.items()}


def journal(*rows: dict[str, Any]) -> HotIndex:
    return index_of([recorded(seq, "parser", **row) for seq, row in enumerate(rows, 1)])


def joined(index: HotIndex, *edges: tuple[int, int, float]) -> HotIndex:
    for seq, (one, other, weight) in enumerate(edges, 100):
        index.edges.apply(one, other, weight, DERIVED, REACTOR, seq)
    return index


WHOLE = Scope(ScopeKind.WORKSPACE)


def test_neighbours_come_by_weight_then_newer_then_id_and_say_where_from() -> None:
    early, late = {"ts": "2026-11-21T09:00:00.000Z"}, {"ts": "2026-11-21T10:00:00.000Z"}
    index = joined(
        journal(early, early, early, late, early, early),
        (0, 1, 0.8), (0, 2, 0.9), (0, 3, 0.8), (5, 4, 0.95), (4, 2, 0.99), (0, 5, 0.97),
    )  # fmt: skip
    found = walk(index, WHOLE, [0, 5], 10)
    assert [(one.doc, one.via, one.weight) for one in found] == [(4, 5, 0.95), (2, 0, 0.9), (3, 0, 0.8), (1, 0, 0.8)]
    assert [one.doc for one in walk(index, WHOLE, [0, 5], 2)] == [4, 2]


def test_a_neighbour_of_two_hits_is_found_once_by_its_heaviest_edge() -> None:
    index = joined(journal({}, {}, {}), (2, 0, 0.8), (1, 2, 0.9))
    assert [(one.doc, one.via, one.weight) for one in walk(index, WHOLE, [0, 1], 5)] == [(2, 1, 0.9)]
    equal = joined(journal({}, {}, {}), (2, 0, 0.9), (1, 2, 0.9))
    assert [one.via for one in walk(equal, WHOLE, [1, 0], 5)] == [1]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope(ScopeKind.OWN, "a1"), [1]),
        (Scope(ScopeKind.CREW_SHARED, "a1", "c1"), [1, 3]),
        (WHOLE, [1, 2, 3, 4]),
    ],
)
def test_an_edge_leads_nowhere_out_of_scope(scope: Scope, expected: list[int]) -> None:
    rows = [
        {"crew_id": "c1"},
        {"crew_id": "c1"},
        {"agent_id": "a2", "crew_id": "c1"},
        {"agent_id": "a2", "crew_id": "c1", "entry_type": "peer.escalation"},
        {"agent_id": "a3", "crew_id": "c2", "entry_type": "peer.escalation"},
    ]
    index = joined(journal(*rows), *((0, doc, 0.9) for doc in range(1, 5)))
    assert sorted(one.doc for one in walk(index, scope, [0], 10)) == expected


def test_a_retracted_edge_is_not_walked() -> None:
    index = joined(journal({}, {}), (0, 1, 0.9))
    index.edges.apply(0, 1, 0.0, RETRACTED, AGENT, 200)
    assert walk(index, WHOLE, [0], 5) == []
    index.edges.apply(1, 0, 0.7, ASSERTED, OPERATOR, 201)
    assert [one.weight for one in walk(index, WHOLE, [0], 5)] == [0.7]
