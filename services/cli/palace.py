"""The groups ``palace`` and ``layered``, whose commands are those of the operations, and how people see drawers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .commands import CommandGroup
from .output import listing, print_pairs, print_table, print_text, say
from .palace_import.command import palace_import

layered = CommandGroup(help="Layered memory: facts, procedures and episodes.")
palace = CommandGroup(help="Drawers of the palace: texts filed under wing and room.")
palace.command("import")(palace_import)
_EMPTY: Final = "no drawer was found: `crew-journal palace add` files one"


def print_drawer_hits(answer: Mapping[str, Any]) -> None:
    """A table of drawers that are similar to a text."""
    hits = answer.get("results", answer.get("duplicates", ()))
    rows = [(f"{hit['similarity']:.2f}", hit["id"], hit["memory_type"], hit["author"], hit["content"]) for hit in hits]
    print_table(("similarity", "drawer", "type", "author", "text"), rows, right=("similarity",), empty=_EMPTY)


print_drawers = listing(
    "drawers",
    ("drawer", "wing", "room", "type", "author", "text"),
    lambda drawer: (
        drawer["id"],
        drawer["wing"],
        drawer["room"],
        drawer["memory_type"],
        drawer["author"],
        drawer["content"],
    ),
    empty=_EMPTY,
)
print_diary = listing(
    "entries",
    ("filed", "author", "text"),
    lambda entry: (entry["filed_at"][:19] + "Z", entry["author"], entry["content"]),
    empty="the diary is empty: `crew-journal palace diary-write` writes into it",
)
print_drawer_counts = listing(
    "rooms",
    ("drawers", "wing", "room"),
    lambda place: (place["count"], place["wing"], place["room"]),
    right=("drawers",),
    empty=_EMPTY,
)


print_wings = listing(
    "wings", ("drawers", "wing"), lambda place: (place["count"], place["wing"]), right=("drawers",), empty=_EMPTY
)
_NO_TUNNELS: Final = "there are no created tunnels: `crew-journal palace tunnel-create` makes one"
print_explicit_tunnels = listing(
    "tunnels",
    ("tunnel", "strength", "from", "to", "label"),
    lambda tunnel: (
        tunnel["id"],
        f"{tunnel['strength']:.2f}",
        f"{tunnel['source_wing']}/{tunnel['source_room']}",
        f"{tunnel['target_wing']}/{tunnel['target_room']}",
        tunnel["label"] or "-",
    ),
    right=("strength",),
    empty=_NO_TUNNELS,
)
print_connections = listing(
    "connections",
    ("tunnel", "strength", "room", "drawers", "label", "text"),
    lambda tunnel: (
        tunnel["tunnel_id"],
        f"{tunnel['strength']:.2f}",
        f"{tunnel['wing']}/{tunnel['room']}",
        tunnel["drawers"],
        tunnel["label"] or "-",
        tunnel["preview"],
    ),
    right=("strength", "drawers"),
    empty="the room has no created tunnels: `crew-journal palace tunnel-create` makes one",
)
print_reached = listing(
    "rooms",
    ("hops", "drawers", "room", "wings", "through"),
    lambda tunnel: (
        tunnel["hop"],
        tunnel["count"],
        tunnel["room"],
        ", ".join(tunnel["wings"]),
        ", ".join(tunnel["connected_via"]) or "-",
    ),
    right=("hops", "drawers"),
    empty=_EMPTY,
)


def print_taxonomy(answer: Mapping[str, Any]) -> None:
    """A table of the rooms of each wing."""
    rooms = [
        (count, wing, room) for wing, inside in answer["taxonomy"].items() for room, count in inside["rooms"].items()
    ]
    print_table(("drawers", "wing", "room"), rooms, right=("drawers",), empty=_EMPTY)


def print_tunnels(answer: Mapping[str, Any]) -> None:
    """The rooms in several wings, and the created tunnels if there are any."""
    _print_shared(answer["tunnels"], "no room is in several wings")
    if answer["explicit"]:
        print()
        print_explicit_tunnels({"tunnels": answer["explicit"]})


def print_tunnel(answer: Mapping[str, Any]) -> None:
    """A tunnel that was created, or was there already."""
    print_explicit_tunnels({"tunnels": [answer["tunnel"]]})
    if not answer["created"]:
        say("there was a tunnel between these rooms already")


def print_graph(answer: Mapping[str, Any]) -> None:
    """The figures of the graph, the rooms of each wing, and the rooms in most wings."""
    figures = {"rooms": "total_rooms", "rooms in several wings": "tunnel_rooms", "edges": "total_edges"}
    print_pairs((label, answer[name]) for label, name in figures.items())
    if answer["rooms_per_wing"]:
        print()
        rows = [(count, wing) for wing, count in answer["rooms_per_wing"].items()]
        print_table(("rooms", "wing"), rows, right=("rooms",))
    if answer["top_tunnels"]:
        print()
        _print_shared(answer["top_tunnels"], "")


def _print_shared(rooms: Sequence[Mapping[str, Any]], empty: str) -> None:
    rows = [(room["count"], room["room"], ", ".join(room["wings"])) for room in rooms]
    print_table(("drawers", "room", "wings"), rows, right=("drawers",), empty=empty)


def print_layer(answer: Mapping[str, Any]) -> None:
    """The text of a layer."""
    print_text(answer["text"])
