"""The graph of the palace: rooms are nodes, and two wings that share a room are joined by a tunnel.

Invariant: pure; every order is total. A room without a name and the room ``general`` are not nodes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ..core.timestamps import DAY_MS

GENERAL_ROOM: Final = "general"
NODES_SHOWN: Final = 50
"""Maximum number of rooms of one answer."""
TOP_TUNNELS: Final = 10


class PlaceCount(NamedTuple):
    """Number of drawers at a place of the palace."""

    wing: str
    room: str
    hall: str
    drawers: int


class Room(NamedTuple):
    """A room over all wings: sorted wings, sorted halls that have a name, number of drawers."""

    name: str
    wings: tuple[str, ...]
    halls: tuple[str, ...]
    drawers: int


class Reached(NamedTuple):
    """A room that a walk reached, after how many hops, and the wings that it shares with the room before it."""

    room: Room
    hop: int
    connected_via: tuple[str, ...]


class GraphCounts(NamedTuple):
    """Figures of the graph."""

    total_rooms: int
    tunnel_rooms: int
    total_edges: int
    rooms_per_wing: Mapping[str, int]
    top_tunnels: tuple[Room, ...]


def rooms_of(places: Iterable[PlaceCount]) -> dict[str, Room]:
    """The nodes by name."""
    by_room: dict[str, list[PlaceCount]] = {}
    for place in places:
        if place.room not in ("", GENERAL_ROOM):
            by_room.setdefault(place.room, []).append(place)
    return {
        name: Room(
            name,
            tuple(sorted({row.wing for row in rows})),
            tuple(sorted({row.hall for row in rows if row.hall})),
            sum(row.drawers for row in rows),
        )
        for name, rows in sorted(by_room.items())
    }


def walk(rooms: Mapping[str, Room], start: str, max_hops: int) -> list[Reached]:
    """The rooms within some hops of a room, itself included; a hop leads to every room that shares a wing.

    Order: hops, then drawers descending, then name. Rooms that are equally far are reached from the first of them by
    name.

    Raises:
        KeyError: If there is no room ``start``.
    """
    reached = {start: Reached(rooms[start], 0, ())}
    frontier = [rooms[start]]
    for hop in range(1, max_hops + 1):
        next_rooms: list[Room] = []
        for visited in sorted(frontier, key=lambda room: room.name):
            for room in rooms.values():
                if room.name not in reached and (shared := set(visited.wings) & set(room.wings)):
                    reached[room.name] = Reached(room, hop, tuple(sorted(shared)))
                    next_rooms.append(room)
        frontier = next_rooms
    ordered = sorted(reached.values(), key=lambda step: (step.hop, -step.room.drawers, step.room.name))
    return ordered[:NODES_SHOWN]


def tunnels(rooms: Mapping[str, Room], *wings: str) -> list[Room]:
    """Rooms in at least two wings, the given ones among them, by drawers descending, then name."""
    tunnels_ = [room for room in rooms.values() if len(room.wings) > 1 and set(wings) <= set(room.wings)]
    return sorted(tunnels_, key=lambda room: (-room.drawers, room.name))[:NODES_SHOWN]


def graph_counts(rooms: Mapping[str, Room]) -> GraphCounts:
    """Figures of the graph; a room in ``w`` wings gives ``w(w - 1)/2`` edges."""
    shared = [room for room in rooms.values() if len(room.wings) > 1]
    wings = sorted({wing for room in rooms.values() for wing in room.wings})
    return GraphCounts(
        len(rooms),
        len(shared),
        sum(len(room.wings) * (len(room.wings) - 1) // 2 for room in shared),
        {wing: sum(wing in room.wings for room in rooms.values()) for wing in wings},
        tuple(sorted(shared, key=lambda room: (-len(room.wings), -room.drawers, room.name))[:TOP_TUNNELS]),
    )


# The id and the strength of an explicit tunnel (contract of the palace, part C).


FIRST_STRENGTH: Final = 1.0
FIRST_STABILITY: Final = 1.0
"""Days in which the strength falls to 1/e."""
MOST_STRENGTH: Final = 5.0
LEAST_STRENGTH: Final = 0.05
_STRONGER: Final = 0.05
_STABLER: Final = 0.1
_APART_MS: Final = 3_600_000


class Use(NamedTuple):
    """How a tunnel was used: strength when it was last followed, stability in days, and when that was."""

    strength: float
    stability: float
    followed_ms: int


def tunnel_id(end: tuple[str, str], other_end: tuple[str, str]) -> str:
    """``tunnel_<16 hex>`` of two places (wing, room), the same in both orders."""
    ends = json.dumps(sorted((end, other_end)), ensure_ascii=False)
    return f"tunnel_{hashlib.sha256(ends.encode()).hexdigest()[:16]}"


def followed(use: Use, now_ms: int) -> Use:
    """The use after the tunnel was followed at a time."""
    spaced = now_ms - use.followed_ms >= _APART_MS
    return Use(
        min(MOST_STRENGTH, use.strength + _STRONGER),
        use.stability + _STABLER if spaced else use.stability,
        max(use.followed_ms, now_ms),
    )


def strength_at(use: Use, now_ms: int) -> float:
    """The strength at a time."""
    days = max(0, now_ms - use.followed_ms) / DAY_MS
    return max(LEAST_STRENGTH, use.strength * math.exp(-days / use.stability))
