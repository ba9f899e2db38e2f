"""Walking the palace: rooms that share wings."""

from __future__ import annotations

import pytest

from crew_journal.schemas.palace.rules import NODES_SHOWN, PlaceCount, graph_counts, rooms_of, tunnels, walk

PLACES = [
    PlaceCount("backend", "auth", "", 3),
    PlaceCount("backend", "auth", "login", 1),
    PlaceCount("mobile", "auth", "login", 2),
    PlaceCount("mobile", "push", "", 9),
    PlaceCount("backend", "database", "", 5),
    PlaceCount("ops", "database", "", 1),
    PlaceCount("ops", "alerts", "", 1),
    PlaceCount("attic", "boxes", "", 1),
    PlaceCount("ops", "general", "", 8),
    PlaceCount("ops", "", "", 8),
]
ROOMS = rooms_of(PLACES)


def test_a_room_unites_its_wings_and_halls_without_general() -> None:
    assert ROOMS["auth"] == ("auth", ("backend", "mobile"), ("login",), 6)
    assert sorted(ROOMS) == ["alerts", "auth", "boxes", "database", "push"]


def test_a_walk_lists_near_rooms_first_and_full_ones_before_others() -> None:
    found = [(one.room.name, one.hop, one.connected_via) for one in walk(ROOMS, "auth", 3)]
    assert found == [
        ("auth", 0, ()),
        ("push", 1, ("mobile",)),
        ("database", 1, ("backend",)),
        ("alerts", 2, ("ops",)),
    ]


def test_a_walk_ends_after_its_hops() -> None:
    assert [one.room.name for one in walk(ROOMS, "auth", 1)] == ["auth", "push", "database"]
    assert [one.room.name for one in walk(ROOMS, "auth", 0)] == ["auth"]


def test_a_walk_from_an_unknown_room_fails() -> None:
    with pytest.raises(KeyError):
        walk(ROOMS, "cellar", 2)


def test_a_walk_shows_the_first_of_many_rooms_after_it_has_seen_all() -> None:
    many = rooms_of([PlaceCount("w", f"room {n:03}", "", n) for n in range(1, 120)])
    found = walk(many, "room 001", 2)
    assert len(found) == NODES_SHOWN
    assert found[1].room.name == "room 119"


@pytest.mark.parametrize(
    ("wings", "expected"),
    [
        ((), ["auth", "database"]),
        (("ops",), ["database"]),
        (("mobile", "backend"), ["auth"]),
        (("mobile", "ops"), []),
        (("cellar",), []),
    ],
)
def test_a_tunnel_is_a_room_of_two_wings_with_the_given_ones_among_them(
    wings: tuple[str, ...], expected: list[str]
) -> None:
    assert [room.name for room in tunnels(ROOMS, *wings)] == expected


def test_the_figures_count_pairs_of_wings() -> None:
    counts = graph_counts(rooms_of([*PLACES, PlaceCount("ops", "auth", "", 1)]))
    assert (counts.total_rooms, counts.tunnel_rooms, counts.total_edges) == (5, 2, 3 + 1)
    assert counts.rooms_per_wing == {"attic": 1, "backend": 2, "mobile": 2, "ops": 3}
    assert [room.name for room in counts.top_tunnels] == ["auth", "database"]
