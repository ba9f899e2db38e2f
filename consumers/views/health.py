"""``memory_health_snapshots``: how healthy each workspace's and crew's memory was, a row a day.

Invariant: of the measurements of a day the one with the latest instant counts (the entry's ``ts`` is the sweep's due
time), whichever came first in the journal: a night that is caught up does not overwrite what was measured after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.health import HealthRecorded
from ...schemas.views import HEALTH_PROJECTION, HEALTH_SNAPSHOTS
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_METRICS: Final = ("freshness", "coverage", "coherence", "efficiency", "reachability")
_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {HEALTH_SNAPSHOTS} (
    workspace_id VARCHAR NOT NULL, crew_id VARCHAR, snapshot_date VARCHAR NOT NULL, measured_at BIGINT NOT NULL,
    {", ".join(f"{name} DOUBLE" for name in _METRICS)}, score DOUBLE, band VARCHAR,
    {", ".join(f"legacy_{name} DOUBLE" for name in _METRICS)}, legacy_score DOUBLE,
    reasons VARCHAR NOT NULL, next_step VARCHAR NOT NULL, counts VARCHAR NOT NULL, model VARCHAR,
    rules INTEGER NOT NULL, seq UBIGINT NOT NULL)"""
_SAME_DAY: Final = "workspace_id = ? AND crew_id IS NOT DISTINCT FROM ? AND snapshot_date = ?"


class HealthProjection:
    """Folds ``memory.health_recorded``."""

    name: ClassVar[str] = HEALTH_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (HEALTH_SNAPSHOTS,)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Keep the latest measurement of each day."""
        for event in batch.control(HealthRecorded.ENTRY_TYPE):
            self._record(event, payload_of(event, HealthRecorded), tx)

    def _record(self, event: EntryRecorded, health: HealthRecorded, tx: FoldTransaction) -> None:
        day = [event.workspace_id, health.crew_id, health.date]
        known = tx.rows(f"SELECT measured_at FROM {HEALTH_SNAPSHOTS} WHERE {_SAME_DAY}", day)
        if known and known[0][0] > event.ts_ms:
            return
        if known:
            tx.execute(f"DELETE FROM {HEALTH_SNAPSHOTS} WHERE {_SAME_DAY}", day)
        row = {
            "workspace_id": event.workspace_id,
            "crew_id": health.crew_id,
            "snapshot_date": health.date,
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
        marks = ", ".join("?" * len(row))
        tx.execute(f"INSERT INTO {HEALTH_SNAPSHOTS} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


PROJECTION = HealthProjection
