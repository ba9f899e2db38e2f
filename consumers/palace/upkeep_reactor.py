"""Reactors that keep the importance of drawers up to date: nightly pruning, and reinforcement by similar drawers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nats.aio.msg import Msg

from ...schemas.core import headers as h
from ...schemas.core.ids import sealed
from ...schemas.core.payload import ControlPayload
from ...schemas.core.subjects import Family
from ...schemas.core.timestamps import DAY_MS
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.palace.events import CentroidComputed, DrawerFiled, DrawerPruned, DrawerReinforced
from ...schemas.palace.rules import DIARY, REINFORCE_ABOVE, REINFORCE_AMONG, REINFORCE_BOOST, pruned
from ...schemas.palace.tables import DRAWERS, LIVE_DRAWER
from ...schemas.sweeps.rules import DECAY
from ..reacting.pull_reactor import ViewsLimits, ViewsReactor
from ..reacting.sweeping import Tick, TickReactor
from .classify_reads import NEEDS, RETRY_FIRST_S, NearDrawer, Neighbours, fading_in, new_centroids
from .exchange_filing import ADDED_BY

# Prunes drawers every night and computes centroids on Sundays (contract of the palace, §5 and §6).
#
# Before, a fold of the same tick (``consumers/palace/fold``) has let the drawers decay. The journal's decay publishes
# ``sweep.finished`` of the tick, so this reactor publishes only changes.
#
# Invariant: ids of events are derived from the workspace and the day, so that a second sweep of a day publishes
# nothing.
#
# Durable: ack policy explicit, ack wait ``SweepLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, one
# tick at a time.


PRUNED_AT_ONCE: Final = 1_000
"""Maximum number of drawers in one ``drawer.pruned``."""
_SUNDAY: Final = 6


class PalaceMaintainReactor(TickReactor):
    """The reactor; the work takes its time from the tick."""

    name = "palace_maintain"
    version = 1
    sweep = DECAY
    description = "nights after which drawers are pruned"
    needs = NEEDS
    counted = ("pruned", "centroids")

    async def on_tick(self, tick: Tick) -> None:
        """Prune drawers, and on Sundays compute centroids."""
        await self._prune(tick)
        if datetime.fromtimestamp(tick.due_ms / 1_000, UTC).weekday() == _SUNDAY:
            await self._compute_centroids(tick)

    async def _prune(self, tick: Tick) -> None:
        ids = pruned(*await asyncio.to_thread(fading_in, self._views, tick.workspace_id, tick.due_ms))
        for at in range(0, len(ids), PRUNED_AT_ONCE):
            part = tuple(ids[at : at + PRUNED_AT_ONCE])
            await self._decide(
                tick, DrawerPruned(drawer_ids=part), f"pruned/{part[0]}", f"{len(part)} drawers are pruned"
            )
        self._counts["pruned"] += len(ids)

    async def _compute_centroids(self, tick: Tick) -> None:
        workspace_id = tick.workspace_id
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        if model is None:
            return
        for centroid in await asyncio.to_thread(new_centroids, self._views, workspace_id, model, tick.due_ms):
            payload = CentroidComputed(
                memory_type=centroid.memory_type,
                model=model,
                vector=base64.b64encode(centroid.vector.tobytes()).decode(),
                samples=centroid.samples,
                source_hash=centroid.source_hash,
            )
            name = f"centroid/{model}/{centroid.memory_type}/{centroid.source_hash}"
            await self._decide(
                tick, payload, name, f"The centroid of {centroid.memory_type} has {centroid.samples} drawers"
            )
            self._counts["centroids"] += 1

    async def _decide(self, tick: Tick, payload: ControlPayload, name: str, summary: str) -> None:
        day = str(tick.due_ms // DAY_MS)
        await self.record(tick.workspace_id, payload, sealed(name), cause=tick.entry_id, summary=summary, key=day)


# Reinforces drawers that are similar to one that was added by hand (contract of the palace, §5).
#
# Of the five nearest live drawers that were filed before it, those with a cosine above 0.7 gain 0.5 of importance.
# Only ``palace add`` reinforces; conversations, diaries, devices and imports do not. Entries of a diary gain nothing.
#
# Invariants: a drawer reinforces once, however often it is added or the reactor runs, because the id of the event
# follows from the entry that filed it first. A drawer that is added while there is no embedding model never reinforces.
#
# Durable: ack policy explicit, ack wait ``ReinforceLimits.ack_wait_s`` (renewed while it works), unlimited deliveries,
# at most ``max_ack_pending`` unacked; in stream order, except for drawers that wait for the vectors of earlier ones.


_ADDED: Final = f"""SELECT drawer_id, entry_id, filed_ms FROM {DRAWERS} AS added
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND entry_id IN (SELECT unnest(?)) AND memory_type <> '{DIARY}'
        AND added_by NOT IN ('{ADDED_BY}', 'mobile') AND imported_from = '' AND NOT EXISTS (FROM {DRAWERS} AS past
            WHERE past.key = added.key AND past.drawer_id = added.drawer_id AND past.entry_id <> added.entry_id)
    ORDER BY filed_ms, drawer_id"""


@dataclass(frozen=True, slots=True)
class ReinforceLimits(ViewsLimits):
    """Times of this reactor.

    Attributes:
        retry_s: Seconds of the first pause of a drawer that waits for vectors.
    """

    retry_s: float = RETRY_FIRST_S


class PalaceReinforceReactor(ViewsReactor):
    """The reactor."""

    name = "palace_reinforce"
    version = 1
    filter_subjects = (f"{Family.CONTROL.value}.*.{DrawerFiled.ENTRY_TYPE}",)
    description = "drawers that may reinforce others"
    needs = NEEDS
    counted = ("compared", "reinforced")
    default_limits = ReinforceLimits()
    _limits: ReinforceLimits

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Compare drawers, and put off those that wait for vectors."""
        by_entry = {(message.headers or {}).get(h.ENTRY_ID, ""): message for message in messages}
        rows = await asyncio.to_thread(self._views.rows, _ADDED, [workspace_id, list(by_entry)])
        neighbours = await Neighbours.of(self._context, self._views, workspace_id) if rows else None
        if neighbours is None or neighbours.embedder is None:
            return
        for drawer_id, entry_id, filed_ms in rows:
            wait_s = await neighbours.wait_s(by_entry[entry_id], filed_ms, self._limits.retry_s)
            if wait_s is not None:
                await self._leases.put_off(by_entry[entry_id], wait_s)
                continue
            self._counts["compared"] += 1
            earlier = partial(_is_earlier, filed_ms)
            near = await neighbours.nearest(drawer_id, REINFORCE_AMONG, REINFORCE_ABOVE, earlier)
            similar = [drawer.drawer_id for drawer in near if drawer.cosine > REINFORCE_ABOVE]
            await self._reinforce(workspace_id, drawer_id, entry_id, similar)

    async def _reinforce(self, workspace_id: str, added: str, cause: str, similar: list[str]) -> None:
        if not similar:
            return
        payload = DrawerReinforced(added=added, drawer_ids=tuple(similar), boost=REINFORCE_BOOST)
        summary = f"{added} reinforces {len(similar)} drawers"
        await self.record(workspace_id, payload, 0, cause=cause, summary=summary)
        self._counts["reinforced"] += len(similar)


def _is_earlier(filed_ms: int, drawer: NearDrawer) -> bool:
    return drawer.filed_ms <= filed_ms


REACTORS: Final = {
    "palace_maintain": PalaceMaintainReactor.create,
    "palace_reinforce": PalaceReinforceReactor.create,
}
