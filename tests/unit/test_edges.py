"""Edges in memory behave as the view does, and walking along them shows nothing that is out of scope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import index_of, recorded

from crew_journal.services.index.entry_index import HotIndex, SimilarEdges
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.arranging import walk

Row = tuple[int, int, float, bool]
ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.8, 0.9]), st.booleans()).filter(
        lambda row: row[0] != row[1]
    ),
    max_size=25,
)


def put(edges: SimilarEdges, rows: list[tuple[int, Row]]) -> None:
    """Put edges by the rows at some sequences."""
    edges.put(
        np.array([row[:2] for _, row in rows], np.int32).reshape(-1, 2),
        np.array([row[2] for _, row in rows], np.float64),
        np.array([row[3] for _, row in rows], bool),
        np.array([seq for seq, _ in rows], np.int64),
    )


def shown(edges: SimilarEdges) -> dict[int, list[tuple[int, float]]]:
    return {doc: sorted(edges.neighbours(doc)) for doc in range(6)}


@given(ROWS, st.integers(0, 25), st.integers(0, 25))
def test_loaded_half_way_and_given_rows_again_they_equal_those_that_followed(
    rows: list[Row], loaded_at: int, again_from: int
) -> None:
    followed, late = SimilarEdges(), SimilarEdges()
    numbered = list(enumerate(rows))
    last = {frozenset(row[:2]): (seq, row) for seq, row in numbered}
    for row in numbered:
        put(followed, [row])
    put(late, list({frozenset(row[:2]): (seq, row) for seq, row in numbered[:loaded_at]}.values()))
    put(late, numbered[min(again_from, loaded_at) :] if loaded_at else list(last.values()))
    expected: dict[int, list[tuple[int, float]]] = {doc: [] for doc in range(6)}
    for _, (one, other, weight, counts) in last.values():
        if counts:
            expected[one].append((other, weight))
            expected[other].append((one, weight))
    assert shown(followed) == shown(late) == {doc: sorted(found) for doc, found in expected.items()}


def journal(*rows: dict[str, Any]) -> HotIndex:
    return index_of([recorded(seq, "parser", **row) for seq, row in enumerate(rows, 1)])


def joined(index: HotIndex, *edges: tuple[int, int, float]) -> HotIndex:
    for seq, (one, other, weight) in enumerate(edges, 100):
        put(index.edges, [(seq, (one, other, weight, True))])
    return index


WHOLE = RecallScope(ScopeKind.WORKSPACE)


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
        (RecallScope(ScopeKind.OWN, "a1"), [1]),
        (RecallScope(ScopeKind.CREW_SHARED, "a1", "c1"), [1, 3]),
        (WHOLE, [1, 2, 3, 4]),
    ],
)
def test_an_edge_leads_nowhere_out_of_scope(scope: RecallScope, expected: list[int]) -> None:
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
    put(index.edges, [(200, (0, 1, 0.9, False))])
    assert walk(index, WHOLE, [0], 5) == []
    put(index.edges, [(201, (1, 0, 0.7, True))])
    assert [one.weight for one in walk(index, WHOLE, [0], 5)] == [0.7]
