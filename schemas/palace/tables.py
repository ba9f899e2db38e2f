"""Tables of the palace: drawers and the identity, with history; reads, upkeep and centroids."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from ..core.table import Default, Ms, Seq, Table
from ..core.texts import TextKind, text_table
from .events import TunnelCreated
from .rules import DECAY_FACTOR, DECAY_FLOOR, FIRST_STABILITY, FIRST_STRENGTH

DRAWERS_PROJECTION: Final = "drawers"


class DrawerRow(NamedTuple):
    """A drawer, with history."""

    key: Seq  # hash of workspace and drawer
    workspace_id: str
    drawer_id: str
    entry_id: str  # of its ``drawer.filed``, by which reads refer to it
    wing: str
    room: str
    hall: str
    content: str
    memory_type: str
    importance: float
    pipeline_tier: str
    state: str
    summary: str
    superseded_by: str | None
    cluster_id: str | None
    added_by: str
    added_by_agent: str
    source_file: str
    conversation: str
    filed_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None
    imported_from: Annotated[str, Default("''")] = ""
    held_until_ms: Ms | None = None  # of a superseded drawer: when the newer one began to hold
    author_type: Annotated[str, Default("''")] = ""  # who filed it, by the token: ``user``, ``agent`` or ``system``
    author_name: Annotated[str, Default("''")] = ""
    author_crew: str | None = None  # crew of the token
    removed_by: Annotated[str, Default("''")] = ""  # of a removed drawer: ``user``, ``agent`` or ``system``


class DrawerUseRow(NamedTuple):
    """How often a drawer was read since it was filed."""

    workspace_id: str
    entry_id: str
    access_count: int
    last_accessed_ms: Ms


class DrawerUpkeepRow(NamedTuple):
    """Changes to a drawer by reactors and sweeps since it was filed; a drawer without any has no row."""

    key: Seq  # as in ``DrawerRow``
    workspace_id: str
    drawer_id: str
    decays: int = 0  # nights on which its importance decayed since it was last set
    decayed_day: int = 0  # the last of them, days since the epoch
    rejected: int = 0  # unusable answers about this drawer alone
    asked_alone: bool = False  # an answer about it and others could not be used
    linked: bool = False  # a model looked for entities
    entity_count: int = 0
    triple_count: int = 0


class DrawerCentroidRow(NamedTuple):
    """The mean vector of a type."""

    workspace_id: str
    memory_type: str
    model: str
    vector: bytes  # (d,) float32
    samples: int
    source_hash: str
    computed_ms: Ms


class PalaceIdentityRow(NamedTuple):
    """The identity of a workspace, with history."""

    workspace_id: str
    content: str
    set_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None
    author_type: Annotated[str, Default("''")] = ""  # who set it, by the token
    author_name: Annotated[str, Default("''")] = ""
    author_agent: Annotated[str, Default("''")] = ""


DRAWERS: Final = Table("drawers", DrawerRow, DRAWERS_PROJECTION, key=("key", "workspace_id", "drawer_id"))
DRAWER_USES: Final = Table("drawer_uses", DrawerUseRow, DRAWERS_PROJECTION, key=("workspace_id", "entry_id"))
DRAWER_UPKEEP: Final = Table(
    "drawer_upkeep", DrawerUpkeepRow, DRAWERS_PROJECTION, key=("key", "workspace_id", "drawer_id")
)
DRAWER_CENTROIDS: Final = Table(
    "drawer_centroids", DrawerCentroidRow, DRAWERS_PROJECTION, key=("workspace_id", "memory_type", "model")
)
PALACE_IDENTITIES: Final = Table("palace_identities", PalaceIdentityRow, DRAWERS_PROJECTION, key=("workspace_id",))
DRAWER_TEXTS: Final = text_table("drawer_texts", DRAWERS_PROJECTION)
"""The contents of live drawers. ``place`` is ``<wing>/<room>``, the source the drawer's ``drawer.filed``."""
DRAWER_KIND: Final = TextKind("drawer", DRAWER_TEXTS)

LIVE_DRAWER: Final = "until_seq IS NULL AND superseded_by IS NULL AND state <> 'merged'"
"""Condition of drawers that are counted, listed, searched and returned."""
ACTIVE_DRAWERS: Final = f"""SELECT 1 FROM {DRAWERS} WHERE workspace_id = $1 AND filed_ms >= $2
    UNION ALL SELECT 1 FROM {DRAWER_USES} WHERE workspace_id = $1 AND last_accessed_ms >= $2 LIMIT 1"""
"""A row if a drawer of the workspace ``$1`` was filed or read since ``$2`` (milliseconds)."""
UPKEEP: Final = f"LEFT JOIN {DRAWER_UPKEEP} AS upkeep USING (key, workspace_id, drawer_id)"
"""Joins the upkeep of each drawer."""
IMPORTANCE_NOW: Final = (
    f"greatest(importance * pow({DECAY_FACTOR}, coalesce(decays, 0)), least(importance, {DECAY_FLOOR}))"
)
"""A drawer's importance after its decays, with ``UPKEEP`` joined; as ``schemas.palace.rules.decayed``."""


# Table of the explicit tunnels of the palace.


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
