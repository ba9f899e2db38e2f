"""Table of the explicit tunnels of the palace."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..events.tunnels import TunnelCreated
from ..rules.palace.tunnels import FIRST_STABILITY, FIRST_STRENGTH
from .table import Ms, Seq, Table

TUNNELS_PROJECTION: Final = "tunnels"


class TunnelRow(NamedTuple):
    """A tunnel, its strength as of the time at which it was last followed, and how often it was."""

    workspace_id: str
    tunnel_id: str
    source_wing: str
    source_room: str
    source_drawer_id: str | None
    target_wing: str
    target_room: str
    target_drawer_id: str | None
    label: str
    created_ms: Ms
    strength: float
    stability: float
    followed_ms: Ms
    follow_count: int
    seq: Seq


TUNNELS: Final = Table("tunnels", TunnelRow, TUNNELS_PROJECTION, key=("workspace_id", "tunnel_id"))


def new_row(workspace_id: str, made: TunnelCreated, seq: int, ms: int) -> TunnelRow:
    """The row of a tunnel that was created at ``seq`` and was not there before."""
    return TunnelRow(
        workspace_id,
        made.tunnel_id,
        made.source.wing,
        made.source.room,
        made.source.drawer_id,
        made.target.wing,
        made.target.room,
        made.target.drawer_id,
        made.label,
        created_ms=ms,
        strength=FIRST_STRENGTH,
        stability=FIRST_STABILITY,
        followed_ms=ms,
        follow_count=0,
        seq=seq,
    )
