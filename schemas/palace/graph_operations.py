"""Operations on the graph of the palace: walking from room to room, tunnels between wings, figures."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StrictInt, StringConstraints

from ..core.operation import Answer, Effect, MinSeq, Operation, Request, Workspace
from .events import LABEL_CHARS
from .operations import DrawerId, Place, bounds, within
from .tables import DRAWERS_PROJECTION, TUNNELS_PROJECTION

# Operations on explicit tunnels: connections between two rooms of the palace that a caller created.


_VIEWS: Final = (DRAWERS_PROJECTION, TUNNELS_PROJECTION)
_TunnelId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


class CreateTunnelRequest(Request):
    """Connect two rooms of the palace; one tunnel serves both directions.

    If the two are connected already, the label and the drawers of the tunnel are replaced, and its strength stays.
    """

    source_wing: Place = Field(description="Wing of the first room.")
    source_room: Place = Field(description="The first room; it must hold drawers.")
    target_wing: Place = Field(description="Wing of the second room.")
    target_room: Place = Field(description="The second room; it must hold drawers.")
    label: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LABEL_CHARS)] = Field(
        default="", description="What connects them."
    )
    source_drawer_id: DrawerId | None = Field(
        default=None, description="The drawer of the first room that the tunnel points to."
    )
    target_drawer_id: DrawerId | None = Field(
        default=None, description="The drawer of the second room that the tunnel points to."
    )
    workspace_id: Workspace = None


class ListTunnelsRequest(Request):
    """List the explicit tunnels, the strongest first."""

    wing: Place | None = Field(default=None, description="Only tunnels with an end in this wing.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class DeleteTunnelRequest(Request):
    """Delete an explicit tunnel."""

    tunnel_id: _TunnelId = Field(description="Id of the tunnel.")
    workspace_id: Workspace = None


class FollowTunnelsRequest(Request):
    """Show the rooms and drawers at the other ends of a room's explicit tunnels, the strongest first.

    Each request is recorded and makes the tunnels stronger.
    """

    wing: Place = Field(description="The wing.")
    room: Place = Field(description="The room within the wing.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ExplicitTunnel(Answer):
    """A tunnel; ``strength`` is its current strength, 0.05 to 5."""

    id: str
    source_wing: str
    source_room: str
    target_wing: str
    target_room: str
    label: str
    source_drawer_id: str | None
    target_drawer_id: str | None
    strength: float
    follow_count: int
    created_at: str
    last_followed_at: str | None


class TunnelAnswer(Answer):
    """A tunnel; ``created`` is false if there was one between these rooms."""

    tunnel: ExplicitTunnel
    created: bool
    seq: int


class TunnelListAnswer(Answer):
    """Tunnels, the strongest first."""

    tunnels: tuple[ExplicitTunnel, ...]
    count: int


class TunnelDeletedAnswer(Answer):
    """Whether there was such a tunnel."""

    deleted: bool
    info: str
    seq: int | None = None


class Connection(Answer):
    """The other end of a tunnel: its room, and its drawer or the room's newest drawer, 300 characters of it."""

    tunnel_id: str
    label: str
    strength: float
    wing: str
    room: str
    drawers: int
    drawer_id: str | None
    preview: str


class FollowTunnelsAnswer(Answer):
    """Other ends, the strongest connection first."""

    connections: tuple[Connection, ...]
    count: int


CREATE_TUNNEL: Final = Operation(
    name="create_tunnel",
    request=CreateTunnelRequest,
    answer=TunnelAnswer,
    route="POST /v1/palace/tunnels",
    effect=Effect.CREATES,
    errors=(404, 409),
    command="palace tunnel-create",
)
LIST_TUNNELS: Final = Operation(
    name="list_tunnels",
    request=ListTunnelsRequest,
    answer=TunnelListAnswer,
    route="GET /v1/palace/tunnels",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace tunnel-list",
)
DELETE_TUNNEL: Final = Operation(
    name="delete_tunnel",
    request=DeleteTunnelRequest,
    answer=TunnelDeletedAnswer,
    route="DELETE /v1/palace/tunnels/{tunnel_id}",
    effect=Effect.DESTROYS,
    errors=(422,),
    command="palace tunnel-delete",
)
FOLLOW_TUNNELS: Final = Operation(
    name="follow_tunnels",
    request=FollowTunnelsRequest,
    answer=FollowTunnelsAnswer,
    route="POST /v1/palace/tunnels/follow",
    effect=Effect.CHANGES,
    views=_VIEWS,
    command="palace tunnel-follow",
    repeatable=False,
)

MAX_HOPS: Final = 5
DEFAULT_HOPS: Final = 3
_PALACE_GRAPH_VIEWS: Final = ("drawers",)


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
    views=_PALACE_GRAPH_VIEWS,
    errors=(404,),
    command="palace traverse",
)
FIND_TUNNELS: Final = Operation(
    name="find_tunnels",
    request=TunnelsRequest,
    answer=TunnelsAnswer,
    route="GET /v1/palace/graph/tunnels",
    effect=Effect.READS,
    views=(*_PALACE_GRAPH_VIEWS, TUNNELS_PROJECTION),
    command="palace tunnels",
)
PALACE_GRAPH: Final = Operation(
    name="palace_graph",
    request=PalaceGraphRequest,
    answer=PalaceGraphAnswer,
    route="GET /v1/palace/graph",
    effect=Effect.READS,
    views=_PALACE_GRAPH_VIEWS,
    command="palace graph",
)

OPERATIONS: Final = (
    TRAVERSE,
    FIND_TUNNELS,
    PALACE_GRAPH,
    CREATE_TUNNEL,
    LIST_TUNNELS,
    DELETE_TUNNEL,
    FOLLOW_TUNNELS,
)
