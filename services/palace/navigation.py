"""Walks the graph of the palace, which is computed from the drawers of a workspace at every request.

Invariant: nothing is cached, so an answer contains every drawer that the view contains.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

from ...schemas.errors import NotFound
from ...schemas.operations import palace_graph as ops
from ...schemas.rules.palace_graph import NODES_SHOWN, Room, graph_counts, rooms_of, tunnels, walk
from ..desk import Caller
from ..node import Answers, Node
from .rows import DrawerReader
from .tunnels import Tunnels

_SUGGESTED: Final = 5
_CUTOFF: Final = 0.4
"""Least similarity of a suggested name (``difflib``); 0.6, its default, misses ``auth`` for ``authentication``."""


class Navigation:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._places = DrawerReader(node.views).places
        self._explicit = node.use(Tunnels).explicit

    async def traverse(self, caller: Caller, request: ops.TraverseRequest) -> ops.TraverseAnswer:
        """The rooms around a room.

        Raises:
            NotFound: If there is no such room; names similar ones.
        """
        rooms = await self._rooms(caller)
        if request.start_room not in rooms:
            close = difflib.get_close_matches(request.start_room, rooms, _SUGGESTED, _CUTOFF)
            hint = f"similar rooms: {', '.join(close)}" if close else "list the rooms to see their names"
            raise NotFound(f"no room {request.start_room[:64]!r}", hint=hint, field="start_room")
        rooms_found = tuple(
            ops.ReachedRoom(**_fields(step.room), hop=step.hop, connected_via=step.connected_via)
            for step in walk(rooms, request.start_room, request.max_hops)
        )
        return ops.TraverseAnswer(rooms=rooms_found, count=len(rooms_found))

    async def tunnels(self, caller: Caller, request: ops.TunnelsRequest) -> ops.TunnelsAnswer:
        """The rooms in several wings, and the explicit tunnels."""
        wings = [wing for wing in (request.wing_a, request.wing_b) if wing]
        rooms_found = tuple(ops.TunnelRoom(**_fields(room)) for room in tunnels(await self._rooms(caller), *wings))
        explicit = (await self._explicit(caller, *wings))[:NODES_SHOWN]
        return ops.TunnelsAnswer(tunnels=rooms_found, count=len(rooms_found), explicit=explicit)

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


ANSWERS: Final[Answers] = (
    (ops.TRAVERSE, Navigation.traverse),
    (ops.FIND_TUNNELS, Navigation.tunnels),
    (ops.PALACE_GRAPH, Navigation.figures),
)
