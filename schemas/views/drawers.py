"""Tables of the palace: drawers and the identity, with history, and how often a drawer was read."""

from __future__ import annotations

from typing import Final, NamedTuple

from .table import Ms, Seq, Table

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
    text_hash: Seq  # ``ids.hash64`` of the content, by which its vector is found in ``memory_chunk_vectors``
    terms: bytes  # as in ``ChunkRow``
    counts: bytes
    since_seq: Seq
    until_seq: Seq | None = None


class DrawerUseRow(NamedTuple):
    """How often a drawer was read since it was filed."""

    workspace_id: str
    entry_id: str
    access_count: int
    last_accessed_ms: Ms


class PalaceIdentityRow(NamedTuple):
    """The identity of a workspace, with history."""

    workspace_id: str
    content: str
    set_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None


DRAWERS: Final = Table("drawers", DrawerRow, DRAWERS_PROJECTION, key=("key", "workspace_id", "drawer_id"))
DRAWER_USES: Final = Table("drawer_uses", DrawerUseRow, DRAWERS_PROJECTION, key=("workspace_id", "entry_id"))
PALACE_IDENTITIES: Final = Table("palace_identities", PalaceIdentityRow, DRAWERS_PROJECTION, key=("workspace_id",))

LIVE_DRAWER: Final = "until_seq IS NULL AND superseded_by IS NULL AND state <> 'merged'"
"""Which drawers are counted, listed, searched and shown."""
