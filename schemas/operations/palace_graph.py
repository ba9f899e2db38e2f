"""Operations on the graph of the palace: walking from room to room, tunnels between wings, figures."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StrictInt

from ..views.tunnels import TUNNELS_PROJECTION
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace
from .palace import bounds, within
from .tunnels import ExplicitTunnel

MAX_HOPS: Final = 5
DEFAULT_HOPS: Final = 3
_VIEWS: Final = ("drawers",)


class TraverseRequest(Request):
    """Show the rooms that can be reached from a room through shared wings."""

    start_room: str = Field(min_length=1, description="The room to start from.")
    max_hops: Annotated[StrictInt, within(0, MAX_HOPS)] = Field(
        default=DEFAULT_HOPS, description=f"Most hops, at most {MAX_HOPS}.", json_schema_extra=bounds(0, MAX_HOPS)
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class TunnelsRequest(Request):
    """Show the rooms that are in several wings, and the tunnels that were created between two rooms."""

    wing_a: str | None = Field(default=None, description="A wing that must be among them.")
    wing_b: str | None = Field(default=None, description="Another wing that must be among them.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class PalaceGraphRequest(Request):
    """Show figures of the graph of rooms and wings."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class TunnelRoom(Answer):
    """A room over all wings, with its number of drawers."""

    room: str
    wings: tuple[str, ...]
    halls: tuple[str, ...]
    count: int


class ReachedRoom(TunnelRoom):
    """A room that was reached after ``hop`` hops, through these wings."""

    hop: int
    connected_via: tuple[str, ...]


class TraverseAnswer(Answer):
    """Rooms, the nearest first."""

    rooms: tuple[ReachedRoom, ...]
    count: int


class TunnelsAnswer(Answer):
    """Rooms in several wings, those with most drawers first; ``explicit`` are the created tunnels, the strongest first.

    ``count`` counts the rooms.
    """

    tunnels: tuple[TunnelRoom, ...]
    count: int
    explicit: tuple[ExplicitTunnel, ...] = ()


class PalaceGraphAnswer(Answer):
    """Figures of the graph; ``top_tunnels`` are the rooms in most wings."""

    total_rooms: int
    tunnel_rooms: int
    total_edges: int
    rooms_per_wing: dict[str, int]
    top_tunnels: tuple[TunnelRoom, ...]


TRAVERSE: Final = Operation(
    name="traverse",
    request=TraverseRequest,
    answer=TraverseAnswer,
    route="GET /v1/palace/graph/rooms",
    effect=Effect.READS,
    views=_VIEWS,
    errors=(404,),
    command="palace traverse",
)
FIND_TUNNELS: Final = Operation(
    name="find_tunnels",
    request=TunnelsRequest,
    answer=TunnelsAnswer,
    route="GET /v1/palace/graph/tunnels",
    effect=Effect.READS,
    views=(*_VIEWS, TUNNELS_PROJECTION),
    command="palace tunnels",
)
PALACE_GRAPH: Final = Operation(
    name="palace_graph",
    request=PalaceGraphRequest,
    answer=PalaceGraphAnswer,
    route="GET /v1/palace/graph",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace graph",
)
OPERATIONS: Final = (TRAVERSE, FIND_TUNNELS, PALACE_GRAPH)
