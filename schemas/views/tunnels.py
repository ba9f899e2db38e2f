"""Table of the explicit tunnels of the palace."""

from __future__ import annotations

from typing import Final, NamedTuple

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
