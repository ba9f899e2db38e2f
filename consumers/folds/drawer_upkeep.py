"""Folds the upkeep of drawers, which is not in their rows: decays, unusable answers, links, centroids.

Invariant: a drawer decays at most once a day, however many sweeps a day has; setting an importance resets the decays.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from ...schemas.events.drawers import CentroidComputed, DrawerState
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.sweeps import SweepTicked
from ...schemas.ids import name_key
from ...schemas.rules.palace.upkeep import ACTIVE_MS, DECAY, DECAY_AGE_DAYS, DECAY_FLOOR, DECAY_UNREAD_DAYS, DIARY
from ...schemas.timestamps import DAY_MS, parse_ts, to_ms
from ...schemas.views.drawers import (
    ACTIVE_DRAWERS,
    DRAWER_CENTROIDS,
    DRAWER_UPKEEP,
    DRAWER_USES,
    DRAWERS,
    IMPORTANCE_NOW,
    LIVE_DRAWER,
    UPKEEP,
    DrawerCentroidRow,
    DrawerUpkeepRow,
)
from ..projection import FoldTransaction
from .payloads import payload_of

_FADING: Final = f"""SELECT drawer.key, drawer.drawer_id FROM {DRAWERS} AS drawer {UPKEEP}
    LEFT JOIN {DRAWER_USES} AS uses ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.PROCESSED}' AND memory_type <> '{DIARY}'
        AND filed_ms < ? AND coalesce(last_accessed_ms, 0) < ? AND coalesce(decayed_day, 0) < ?
        AND {IMPORTANCE_NOW} > {DECAY_FLOOR}
    ORDER BY drawer.key, drawer.drawer_id"""


def decay(event: EntryRecorded, tx: FoldTransaction) -> None:
    """Let the drawers of a workspace decay for the day of a sweep, unless the workspace was silent (contract, §5)."""
    payload = payload_of(event, SweepTicked)
    if payload.sweep != DECAY:
        return
    due_ms = to_ms(parse_ts(payload.due))
    day = due_ms // DAY_MS
    if not tx.rows(ACTIVE_DRAWERS, [event.workspace_id, due_ms - ACTIVE_MS]):
        return
    params = [event.workspace_id, due_ms - DECAY_AGE_DAYS * DAY_MS, due_ms - DECAY_UNREAD_DAYS * DAY_MS, day]
    fading = tx.rows(_FADING, params)
    former = {(row.workspace_id, row.drawer_id): row for row in _former(tx, [key for key, _ in fading])}
    rows = []
    for key, drawer_id in fading:
        before = former.get((event.workspace_id, drawer_id)) or DrawerUpkeepRow(key, event.workspace_id, drawer_id)
        rows.append(before._replace(decays=before.decays + 1, decayed_day=day))
    tx.replace(DRAWER_UPKEEP, rows, list(former.values()))


def keep_up(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, **values: Any) -> None:
    """Set columns of a drawer's upkeep."""
    before, former = _row(event, tx, drawer_id)
    tx.replace(DRAWER_UPKEEP, [before._replace(**values)], former)


def rejected_before(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> int:
    """Unusable answers about a drawer alone until now."""
    return _row(event, tx, drawer_id)[0].rejected


def decays_of(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> int:
    """Nights on which a drawer decayed since its importance was last set."""
    return _row(event, tx, drawer_id)[0].decays


def begin_again(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, *, filed: bool = False) -> None:
    """Forget the decays of a drawer, or, when it is filed again, all of its upkeep."""
    before, former = _row(event, tx, drawer_id)
    new = DrawerUpkeepRow(*before[:3]) if filed else before._replace(decays=0, decayed_day=0)
    if former and new != before:
        tx.replace(DRAWER_UPKEEP, [new], former)


def centroid(event: EntryRecorded, tx: FoldTransaction) -> None:
    """Set the centroid of a type."""
    payload = payload_of(event, CentroidComputed)
    vector = base64.b64decode(payload.vector)
    row = DrawerCentroidRow(
        event.workspace_id,
        payload.memory_type,
        payload.model,
        vector,
        payload.samples,
        payload.source_hash,
        event.published_ms,
    )
    tx.replace(DRAWER_CENTROIDS, [row])


def _row(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> tuple[DrawerUpkeepRow, list[DrawerUpkeepRow]]:
    key = name_key((event.workspace_id, drawer_id))
    former = _former(tx, [key])
    identity = (event.workspace_id, drawer_id)
    row_ = next((row for row in former if (row.workspace_id, row.drawer_id) == identity), None)
    return row_ or DrawerUpkeepRow(key, *identity), former


def _former(tx: FoldTransaction, keys: list[int]) -> list[DrawerUpkeepRow]:
    return tx.find(DRAWER_UPKEEP, keys) if keys else []
