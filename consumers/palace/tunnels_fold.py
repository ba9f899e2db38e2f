"""``tunnels``: the explicit tunnels of the palace.

Invariant: creating a tunnel that exists keeps its age and its strength; an event about an unknown tunnel changes nothing.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Tables
from ...schemas.palace.events import TunnelCreated, TunnelDeleted, TunnelFollowed
from ...schemas.palace.rules import Use, followed
from ...schemas.palace.tables import TUNNELS, TUNNELS_PROJECTION, new_row
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class TunnelsProjection:
    """Folds ``tunnel.*``."""

    name: ClassVar = TUNNELS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TUNNELS,)
    folds: ClassVar = (TunnelCreated, TunnelFollowed, TunnelDeleted)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold each event in stream order."""
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, TunnelCreated):
                _create(event, payload, tx)
            elif isinstance(payload, TunnelFollowed):
                _follow(event, payload, tx)
            elif isinstance(payload, TunnelDeleted):
                tx.delete(TUNNELS, workspace_id=event.workspace_id, tunnel_id=payload.tunnel_id)


def _create(event: EntryRecorded, made: TunnelCreated, tx: FoldTransaction) -> None:
    known = tx.get(TUNNELS, workspace_id=event.workspace_id, tunnel_id=made.tunnel_id)
    row = new_row(event.workspace_id, made, event.seq, event.published_ms)
    for before in known:
        row = row._replace(
            created_ms=before.created_ms,
            strength=before.strength,
            stability=before.stability,
            followed_ms=before.followed_ms,
            follow_count=before.follow_count,
        )
    tx.replace(TUNNELS, [row])


def _follow(event: EntryRecorded, payload: TunnelFollowed, tx: FoldTransaction) -> None:
    for tunnel_id in dict.fromkeys(payload.tunnel_ids):
        for row in tx.get(TUNNELS, workspace_id=event.workspace_id, tunnel_id=tunnel_id):
            use = followed(Use(row.strength, row.stability, row.followed_ms), event.published_ms)
            tx.replace(TUNNELS, [row._replace(**use._asdict(), follow_count=row.follow_count + 1, seq=event.seq)])


PROJECTION = TunnelsProjection
