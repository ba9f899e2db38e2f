"""Payloads about explicit tunnels: connections between two rooms of the palace that a caller created.

Invariant: a tunnel has no direction; its id follows from its two ends, whatever their order.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field, StringConstraints

from .drawers import PLACE_CHARS, DrawerId
from .payload import STORED, ControlPayload

LABEL_CHARS: Final = 256
MOST_FOLLOWED: Final = 1_000
"""Maximum number of tunnels of one event."""

TunnelId = Annotated[str, StringConstraints(pattern="^tunnel_[0-9a-f]{16}$")]
_Place = Annotated[str, StringConstraints(min_length=1, max_length=PLACE_CHARS)]


class TunnelEnd(BaseModel):
    """A room of a wing and, if the tunnel points to one, a drawer in it."""

    model_config = STORED
    wing: _Place
    room: _Place
    drawer_id: DrawerId | None = None


class TunnelCreated(ControlPayload):
    """Two rooms were connected, or the label of their connection was set."""

    ENTRY_TYPE = "tunnel.created"
    tunnel_id: TunnelId
    source: TunnelEnd
    target: TunnelEnd
    label: str = Field(default="", max_length=LABEL_CHARS)


class TunnelFollowed(ControlPayload):
    """A caller followed these tunnels, which makes them stronger."""

    ENTRY_TYPE = "tunnel.followed"
    tunnel_ids: tuple[TunnelId, ...] = Field(min_length=1, max_length=MOST_FOLLOWED)


class TunnelDeleted(ControlPayload):
    """A caller deleted a tunnel."""

    ENTRY_TYPE = "tunnel.deleted"
    tunnel_id: TunnelId
