"""``tunnels``: the explicit tunnels of the palace as their events have made them.

Invariant: creating a tunnel that exists keeps its age and its strength; an event about an unknown tunnel changes nothing.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.tunnels import TunnelCreated, TunnelDeleted, TunnelFollowed
from ...schemas.rules.palace.tunnels import FIRST_STABILITY, FIRST_STRENGTH, Use, followed
from ...schemas.views.table import Tables
from ...schemas.views.tunnels import TUNNELS, TUNNELS_PROJECTION, TunnelRow
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction


class TunnelsProjection:
    """Folds ``tunnel.*``."""

    name: ClassVar = TUNNELS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TUNNELS,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold each event in stream order."""
        for event in batch.control(TunnelCreated.ENTRY_TYPE, TunnelFollowed.ENTRY_TYPE, TunnelDeleted.ENTRY_TYPE):
            match event.entry.entry_type:
                case TunnelCreated.ENTRY_TYPE:
                    _created(event, tx)
                case TunnelFollowed.ENTRY_TYPE:
                    _followed(event, tx)
                case _:
                    tunnel_id = payload_of(event, TunnelDeleted).tunnel_id
                    tx.delete(TUNNELS, workspace_id=event.workspace_id, tunnel_id=tunnel_id)


def _created(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, TunnelCreated)
    known = tx.get(TUNNELS, workspace_id=event.workspace_id, tunnel_id=payload.tunnel_id)
    row = TunnelRow(
        event.workspace_id,
        payload.tunnel_id,
        payload.source.wing,
        payload.source.room,
        payload.source.drawer_id,
        payload.target.wing,
        payload.target.room,
        payload.target.drawer_id,
        payload.label,
        created_ms=event.published_ms,
        strength=FIRST_STRENGTH,
        stability=FIRST_STABILITY,
        followed_ms=event.published_ms,
        follow_count=0,
        seq=event.seq,
    )
    for before in known:
        row = row._replace(
            created_ms=before.created_ms,
            strength=before.strength,
            stability=before.stability,
            followed_ms=before.followed_ms,
            follow_count=before.follow_count,
        )
    tx.replace(TUNNELS, [row])


def _followed(event: EntryRecorded, tx: FoldTransaction) -> None:
    for tunnel_id in dict.fromkeys(payload_of(event, TunnelFollowed).tunnel_ids):
        for row in tx.get(TUNNELS, workspace_id=event.workspace_id, tunnel_id=tunnel_id):
            use = followed(Use(row.strength, row.stability, row.followed_ms), event.published_ms)
            tx.replace(TUNNELS, [row._replace(**use._asdict(), follow_count=row.follow_count + 1, seq=event.seq)])


PROJECTION = TunnelsProjection
