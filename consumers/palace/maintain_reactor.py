"""Prunes drawers every night and computes centroids on Sundays (contract of the palace, §5 and §6).

Before, a fold of the same tick (``consumers/palace/fold``) has let the drawers decay. The journal's decay publishes
``sweep.finished`` of the tick, so this reactor publishes only changes.

Invariant: ids of events are derived from the workspace and the day, so that a second sweep of a day publishes nothing.

Durable: ack policy explicit, ack wait ``SweepLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, one tick
at a time.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Final

from ...schemas.core.ids import derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import DAY_MS
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.palace.events import CentroidComputed, DrawerPruned
from ...schemas.palace.rules import pruned
from ...schemas.sweeps.rules import DECAY
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import Tick, TickReactor
from .classify_reads import NEEDS, fading_in, new_centroids

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
        cause = f"{tick.workspace_id}/{tick.due_ms // DAY_MS}"
        fact = encode_control(
            tick.workspace_id,
            payload,
            fact_id=derived_id(self.name, self.version, cause, name),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=summary,
        )
        await self.publish(fact)


REACTORS: Final = {"palace_maintain": PalaceMaintainReactor.create}
