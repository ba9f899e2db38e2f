"""Walks the graph of the palace, which is computed from the drawers of a workspace at every request.

Invariant: nothing is cached, so an answer contains every drawer that the view contains.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ...schemas.errors import NotFound
from ...schemas.operations import palace_graph as ops
from ...schemas.operations.tunnels import ExplicitTunnel
from ...schemas.rules.palace_graph import NODES_SHOWN, PlaceCount, Room, graph_counts, rooms_of, tunnels, walk
from ..desk import Caller

Places = Callable[[str], Awaitable[Sequence[PlaceCount]]]
"""The places of a workspace that hold drawers."""
Explicit = Callable[..., Awaitable[tuple[ExplicitTunnel, ...]]]
"""The explicit tunnels, as a caller may read them, with an end in each of the wings."""
_SUGGESTED: Final = 5
_CUTOFF: Final = 0.4
"""Least similarity of a suggested name (``difflib``); 0.6, its default, misses ``auth`` for ``authentication``."""


class Navigation:
    """The use-cases.

    Args:
        places: Reads the places of a workspace.
        explicit: Reads the explicit tunnels of a caller's workspace between some wings.
    """

    def __init__(self, places: Places, explicit: Explicit) -> None:
        self._places = places
        self._explicit = explicit

    async def traverse(self, caller: Caller, asked: ops.TraverseRequest) -> ops.TraverseAnswer:
        """The rooms around a room.

        Raises:
            NotFound: If there is no such room; names similar ones.
        """
        rooms = await self._rooms(caller)
        if asked.start_room not in rooms:
            close = difflib.get_close_matches(asked.start_room, rooms, _SUGGESTED, _CUTOFF)
            hint = f"similar rooms: {', '.join(close)}" if close else "list the rooms to see their names"
            raise NotFound(f"no room {asked.start_room[:64]!r}", hint=hint, field="start_room")
        found = tuple(
            ops.ReachedRoom(**_fields(one.room), hop=one.hop, connected_via=one.connected_via)
            for one in walk(rooms, asked.start_room, asked.max_hops)
        )
        return ops.TraverseAnswer(rooms=found, count=len(found))

    async def tunnels(self, caller: Caller, asked: ops.TunnelsRequest) -> ops.TunnelsAnswer:
        """The rooms in several wings, and the explicit tunnels."""
        wings = [wing for wing in (asked.wing_a, asked.wing_b) if wing]
        found = tuple(ops.TunnelRoom(**_fields(room)) for room in tunnels(await self._rooms(caller), *wings))
        explicit = (await self._explicit(caller, *wings))[:NODES_SHOWN]
        return ops.TunnelsAnswer(tunnels=found, count=len(found), explicit=explicit)

    async def figures(self, caller: Caller, _asked: ops.PalaceGraphRequest) -> ops.PalaceGraphAnswer:
        """Figures of the graph."""
        counts = graph_counts(await self._rooms(caller))
        return ops.PalaceGraphAnswer(
            total_rooms=counts.total_rooms,
            tunnel_rooms=counts.tunnel_rooms,
            total_edges=counts.total_edges,
            rooms_per_wing=dict(counts.rooms_per_wing),
            top_tunnels=tuple(ops.TunnelRoom(**_fields(room)) for room in counts.top_tunnels),
        )

    async def _rooms(self, caller: Caller) -> dict[str, Room]:
        return rooms_of(await self._places(caller.workspace_id))


def _fields(room: Room) -> dict[str, Any]:
    return {"room": room.name, "wings": room.wings, "halls": room.halls, "count": room.drawers}
