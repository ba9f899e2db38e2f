"""Explicit tunnels between two rooms, with their strength, and walks through the graph of the palace.

Invariant: strength is computed on reading, from the events and the time of the request; no row is updated.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import Any, Final

from ...schemas.core.errors import FieldProblem, InvalidRequest, NotFound, PalaceFull
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.palace import operations as ops
from ...schemas.palace.events import TunnelCreated, TunnelDeleted, TunnelEnd, TunnelFollowed
from ...schemas.palace.rules import (
    NODES_SHOWN,
    Room,
    Use,
    graph_counts,
    rooms_of,
    strength_at,
    tunnel_id,
    tunnels,
    walk,
)
from ...schemas.palace.tables import TUNNELS, TUNNELS_PROJECTION, TunnelRow, new_row
from ..desk import Caller
from ..node import Answers, Decided, Node
from .drawer_index import Drawer, DrawerReader, shown_text

MOST_TUNNELS: Final = 1_000
"""Maximum number of tunnels of a workspace; people and agents create them one by one."""
_PREVIEW_CHARS: Final = 300
_READ: Final = f"SELECT {', '.join(TunnelRow._fields)} FROM {TUNNELS} WHERE workspace_id = ?"


class Tunnels:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._drawers = DrawerReader(node.views)

    async def create(self, caller: Caller, request: ops.CreateTunnelRequest) -> ops.TunnelAnswer:
        """Connect two rooms.

        Raises:
            InvalidRequest: If both are the same room.
            NotFound: If a room has no drawer, or a named drawer does not exist.
            PalaceFull: If the workspace has the maximum number of tunnels.
        """
        source = TunnelEnd(wing=request.source_wing, room=request.source_room, drawer_id=request.source_drawer_id)
        target = TunnelEnd(wing=request.target_wing, room=request.target_room, drawer_id=request.target_drawer_id)
        name = tunnel_id((source.wing, source.room), (target.wing, target.room))
        if (source.wing, source.room) == (target.wing, target.room):
            problem = FieldProblem("target_room", "is the room at the other end", "name two different rooms")
            raise InvalidRequest((problem,))
        for field, end in (("source_room", source), ("target_room", target)):
            await self._check(caller, field, end)
        known = await self._rows(caller.workspace_id)
        is_new = all(row.tunnel_id != name for row in known)
        if is_new and len(known) >= MOST_TUNNELS:
            raise PalaceFull(
                f"the workspace has {MOST_TUNNELS} tunnels, the most that it may have",
                hint="delete tunnels that are no longer needed",
            )
        tunnel_created = TunnelCreated(tunnel_id=name, source=source, target=target, label=request.label)
        decided = await self._decide(caller, tunnel_created, f"{name} is created")
        shown = next(
            (explicit_tunnel for explicit_tunnel in await self.explicit(caller) if explicit_tunnel.id == name), None
        )
        if shown is None:  # the views do not show it yet
            row = new_row(caller.workspace_id, tunnel_created, decided.seq, to_ms(self._node.clock()))
            shown = await asyncio.to_thread(_shown, caller, row, row.created_ms)
        return ops.TunnelAnswer(tunnel=shown, created=is_new, seq=decided.seq)

    async def shown(self, caller: Caller, request: ops.ListTunnelsRequest) -> ops.TunnelListAnswer:
        """The explicit tunnels."""
        wings = (request.wing,) if request.wing else ()
        explicit_tunnels = await self.explicit(caller, *wings)
        return ops.TunnelListAnswer(tunnels=explicit_tunnels, count=len(explicit_tunnels))

    async def delete(self, caller: Caller, request: ops.DeleteTunnelRequest) -> ops.TunnelDeletedAnswer:
        """Delete a tunnel; ``deleted`` is false if there is none."""
        name = request.tunnel_id
        if all(row.tunnel_id != name for row in await self._rows(caller.workspace_id)):
            return ops.TunnelDeletedAnswer(deleted=False, info=f"there is no tunnel {name}")
        seq = (await self._decide(caller, TunnelDeleted(tunnel_id=name), f"{name} is deleted")).seq
        return ops.TunnelDeletedAnswer(deleted=True, info="deleted", seq=seq)

    async def follow(self, caller: Caller, request: ops.FollowTunnelsRequest) -> ops.FollowTunnelsAnswer:
        """The drawers at the other ends of a room's tunnels; records that the tunnels were followed."""
        here = (request.wing, request.room)
        ends = []
        for explicit_tunnel in await self.explicit(caller, request.wing):
            if here == (explicit_tunnel.source_wing, explicit_tunnel.source_room):
                ends.append(
                    (
                        explicit_tunnel,
                        explicit_tunnel.target_wing,
                        explicit_tunnel.target_room,
                        explicit_tunnel.target_drawer_id,
                    )
                )
            elif here == (explicit_tunnel.target_wing, explicit_tunnel.target_room):
                ends.append(
                    (
                        explicit_tunnel,
                        explicit_tunnel.source_wing,
                        explicit_tunnel.source_room,
                        explicit_tunnel.source_drawer_id,
                    )
                )
        connections = [await self._connection(caller, *end) for end in ends[:NODES_SHOWN]]
        if connections:
            followed = TunnelFollowed(tunnel_ids=tuple(connection.tunnel_id for connection in connections))
            await self._decide(
                caller, followed, f"{len(connections)} tunnels of {request.wing}/{request.room} followed"
            )
        return ops.FollowTunnelsAnswer(connections=tuple(connections), count=len(connections))

    async def explicit(self, caller: Caller, *wings: str) -> tuple[ops.ExplicitTunnel, ...]:
        """The explicit tunnels with an end in each of these wings, the strongest first."""
        now = to_ms(self._node.clock())
        rows = [
            row for row in await self._rows(caller.workspace_id) if set(wings) <= {row.source_wing, row.target_wing}
        ]
        shown = await asyncio.to_thread(lambda: [_shown(caller, row, now) for row in rows])
        return tuple(sorted(shown, key=lambda tunnel: (-tunnel.strength, tunnel.id)))

    async def _decide(self, caller: Caller, payload: ControlPayload, summary: str) -> Decided:
        return await self._node.decide(caller, payload, summary, TUNNELS_PROJECTION, **caller.author_fields)

    async def _rows(self, workspace_id: str) -> list[TunnelRow]:
        rows = await asyncio.to_thread(self._views.rows, _READ, [workspace_id])
        return [TunnelRow(*row) for row in rows]

    async def _check(self, caller: Caller, field: str, end: TunnelEnd) -> None:
        if not await self._drawers.count(caller.workspace_id, end.wing, end.room):
            hint = f"file a drawer in {end.wing}/{end.room} first, or list the rooms to see their names"
            raise NotFound(f"no drawer in {end.wing}/{end.room}", hint=hint, field=field)
        if end.drawer_id is not None:
            drawer = await self._drawers.latest(caller.workspace_id, end.drawer_id)
            if drawer is None or not drawer.live:
                name = field.replace("room", "drawer_id")
                raise NotFound(f"no drawer {end.drawer_id}", hint="take the id from a search", field=name)

    async def _connection(
        self, caller: Caller, tunnel: ops.ExplicitTunnel, wing: str, room: str, drawer_id: str | None
    ) -> ops.Connection:
        named = None if drawer_id is None else await self._drawers.latest(caller.workspace_id, drawer_id)
        newest = await self._drawers.listed(caller.workspace_id, wing, room, limit=1)
        drawer = named if named is not None and named.live else next(iter(newest), None)
        return ops.Connection(
            tunnel_id=tunnel.id,
            label=tunnel.label,
            strength=tunnel.strength,
            wing=wing,
            room=room,
            drawers=await self._drawers.count(caller.workspace_id, wing, room),
            drawer_id=None if drawer is None else drawer.row.drawer_id,
            preview="" if drawer is None else await asyncio.to_thread(_preview, caller, drawer),
        )


def _preview(caller: Caller, drawer: Drawer) -> str:
    """The beginning of a drawer's text, or the notice that it is blocked."""
    return shown_text(caller, drawer.row.drawer_id, drawer.row.content).content[:_PREVIEW_CHARS]


def _shown(caller: Caller, row: TunnelRow, now_ms: int) -> ops.ExplicitTunnel:
    """A tunnel; its label is a notice if the scanners block it and the caller is not an operator."""
    given = {name: value for name, value in row._asdict().items() if name in ops.ExplicitTunnel.model_fields}
    use = Use(row.strength, row.stability, row.followed_ms)
    return ops.ExplicitTunnel(
        **{
            **given,
            "strength": round(strength_at(use, now_ms), 4),
            "label": shown_text(caller, row.tunnel_id, row.label, what="tunnel").content,
        },
        id=row.tunnel_id,
        created_at=format_ms(row.created_ms),
        last_followed_at=format_ms(row.followed_ms) if row.follow_count else None,
    )


# Walks the graph of the palace, which is computed from the drawers of a workspace at every request.


_SUGGESTED: Final = 5
_CUTOFF: Final = 0.4
"""Minimum similarity of a suggested name (``difflib``); the default of 0.6 misses ``auth`` for ``authentication``."""


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
    (ops.CREATE_TUNNEL, Tunnels.create),
    (ops.LIST_TUNNELS, Tunnels.shown),
    (ops.DELETE_TUNNEL, Tunnels.delete),
    (ops.FOLLOW_TUNNELS, Tunnels.follow),
    (ops.TRAVERSE, Navigation.traverse),
    (ops.FIND_TUNNELS, Navigation.tunnels),
    (ops.PALACE_GRAPH, Navigation.figures),
)
