"""The answers about the graph of the palace, over places in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from bench.one_node import node_of
from crew_journal.schemas.core.errors import NotFound
from crew_journal.schemas.core.ports import ViewReader
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.palace.operations import ExplicitTunnel, PalaceGraphRequest, TraverseRequest, TunnelsRequest
from crew_journal.schemas.palace.rules import PlaceCount
from crew_journal.services.desk import Caller
from crew_journal.services.palace.tunnels import Navigation, Tunnels

PLACES = {
    "acme": [
        PlaceCount("backend", "auth", "login", 3),
        PlaceCount("mobile", "auth", "", 2),
        PlaceCount("mobile", "push", "", 9),
    ],
    "globex": [PlaceCount("backend", "secrets", "", 1)],
}


async def no_tunnels(*_: str) -> tuple[ExplicitTunnel, ...]:
    return ()


def navigation() -> Navigation:
    views = SimpleNamespace(rows=lambda _sql, params: PLACES[params[0]])
    node = node_of(cast(ViewReader, views))
    node.put(Tunnels, cast(Tunnels, SimpleNamespace(explicit=no_tunnels)))
    return Navigation(node)


NAVIGATION = navigation()
CALLER = Caller.of(Principal(token_id="t", role=Role.OWNER, workspace_id="acme"))


async def test_a_walk_says_how_a_room_was_reached() -> None:
    answer = await NAVIGATION.traverse(CALLER, TraverseRequest(start_room="push"))
    assert [(room.room, room.hop, room.connected_via, room.count) for room in answer.rooms] == [
        ("push", 0, (), 9),
        ("auth", 1, ("mobile",), 5),
    ]


async def test_an_unknown_room_is_an_error_with_similar_names() -> None:
    with pytest.raises(NotFound) as caught:
        await NAVIGATION.traverse(CALLER, TraverseRequest(start_room="authentication"))
    assert caught.value.hint == "similar rooms: auth"


async def test_tunnels_and_figures_are_those_of_the_callers_workspace() -> None:
    found = await NAVIGATION.tunnels(CALLER, TunnelsRequest(wing_a="backend"))
    assert [(tunnel.room, tunnel.wings, tunnel.halls) for tunnel in found.tunnels] == [
        ("auth", ("backend", "mobile"), ("login",))
    ]
    figures = await NAVIGATION.figures(CALLER, PalaceGraphRequest())
    assert (figures.total_rooms, figures.total_edges, figures.rooms_per_wing) == (2, 1, {"backend": 1, "mobile": 2})
