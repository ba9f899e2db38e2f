"""Slots: every node computes the same owner, and a node that goes moves only its own slots."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.cluster.slots import SLOTS, first_two_of_all, slot_of

NODES = st.sets(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), min_size=1, max_size=8)


def test_a_workspace_keeps_its_slot_in_every_version():
    assert [slot_of(name) for name in ("default", "_system", "acme")] == [254, 66, 48]


def owners_of(nodes):
    return [names[:1] for names in first_two_of_all(nodes)]


@given(NODES)
def test_owners_are_the_same_in_any_order_of_the_nodes(nodes):
    assert owners_of(sorted(nodes)) == owners_of(sorted(nodes, reverse=True))
    assert {name for names in owners_of(nodes) for name in names} <= nodes


@given(NODES, st.data())
def test_a_node_that_goes_moves_only_its_own_slots(nodes, data):
    gone = data.draw(st.sampled_from(sorted(nodes)))
    before, after = owners_of(nodes), owners_of(nodes - {gone})
    assert all(then == now for then, now in zip(before, after, strict=True) if then != (gone,))


@given(NODES, st.data())
def test_the_slots_of_a_node_that_goes_are_the_next_nodes(nodes, data):
    gone = data.draw(st.sampled_from(sorted(nodes)))
    for then, now in zip(first_two_of_all(nodes), first_two_of_all(nodes - {gone}), strict=True):
        assert now[:1] == tuple(name for name in then if name != gone)[:1]


def test_ten_nodes_share_the_slots_about_evenly():
    shares = Counter(owners_of([f"node-{n}" for n in range(10)]))
    assert len(shares) == 10
    assert sum(shares.values()) == SLOTS
    assert min(shares.values()) > 12
    assert max(shares.values()) < 42
