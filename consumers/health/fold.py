"""``memory_health_snapshots``: how healthy each workspace's and crew's memory was, a row a day.

Invariant: the measurement with the latest time of a day counts (the entry's ``ts`` is the sweep's due time), whatever
the order in the journal: a missed sweep that is done later does not overwrite a newer measurement.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Tables
from ...schemas.health.events import HealthRecorded
from ...schemas.health.tables import HEALTH_PROJECTION, HEALTH_SNAPSHOTS, HealthRow
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction

_METRICS: Final = ("freshness", "coverage", "coherence", "efficiency", "reachability")


class HealthProjection:
    """Folds ``memory.health_recorded``."""

    name: ClassVar = HEALTH_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (HEALTH_SNAPSHOTS,)
    folds: ClassVar = (HealthRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Keep the latest measurement of each day."""
        for event, health in decisions(batch, *self.folds):
            self._record(event, health, tx)

    def _record(self, event: EntryRecorded, health: HealthRecorded, tx: FoldTransaction) -> None:
        day: dict[str, Any] = {
            "workspace_id": event.workspace_id,
            "crew_id": health.crew_id,
            "snapshot_date": health.date,
        }
        known = tx.get(HEALTH_SNAPSHOTS, **day)
        if known and known[0].measured_at > event.ts_ms:
            return
        values: dict[str, Any] = {
            **day,
            "measured_at": event.ts_ms,
            **{name: getattr(health.metrics, name) for name in _METRICS},
            "score": health.score,
            "band": health.band,
            **{f"legacy_{name}": getattr(health.legacy, name) for name in _METRICS},
            "legacy_score": health.legacy_score,
            "reasons": json.dumps(health.reasons),
            "next_step": health.next_step,
            "counts": json.dumps(health.counts, sort_keys=True),
            "model": health.model,
            "rules": health.rules,
            "seq": event.seq,
        }
        tx.replace(HEALTH_SNAPSHOTS, [HealthRow(**values)])


PROJECTION = HealthProjection
