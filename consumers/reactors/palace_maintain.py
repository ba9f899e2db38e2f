"""Prunes drawers every night and computes centroids on Sundays (contract of the palace, §5 and §6).

The decay itself is a fold of the tick (``folds/drawer_upkeep``); this comes after it, on the same tick.
``sweep.finished`` of that tick is published for the journal's decay, so this adds entries only when it changes something.

Invariant: what it publishes has ids that follow from the workspace and the day, so a second sweep of a day prunes nothing
more.

Durable: ack policy explicit, ack wait ``SweepLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, one tick
at a time.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar, Final

from nats.aio.client import Client

from ...schemas.active_models import active_in, read_active_models
from ...schemas.errors import ViewsBehind
from ...schemas.events.drawers import CentroidComputed, DrawerPruned
from ...schemas.events.payload import ControlPayload
from ...schemas.ids import derived_id
from ...schemas.ports import Publisher, ViewReader
from ...schemas.rules.palace.upkeep import DECAY, pruned
from ...schemas.timestamps import DAY_MS
from ..reacting.control_facts import encode_control
from ..reacting.durable import Durable
from ..reacting.pull_reactor import PullReactor
from ..reacting.sweeping import FILTER_SUBJECTS, SweepLimits, Tick, tick_of
from ..reactor import Reactor, ReactorContext
from .palace_classify_reads import NEEDS, fading_in, new_centroids

PRUNED_AT_ONCE: Final = 1_000
"""Drawers of one ``drawer.pruned``."""
_SUNDAY: Final = 6


class PalaceMaintainReactor(PullReactor):
    """The reactor; it reads the views, so it runs where they are.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: Where drawers are read.
        clock: The time for ``status``; the work takes its time from the tick.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "palace_maintain"
    version: ClassVar[int] = 1
    waits_for: ClassVar[tuple[type[Exception], ...]] = (*PullReactor.waits_for, ViewsBehind)

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        views: ViewReader,
        *,
        clock: Callable[[], datetime],
        limits: SweepLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or SweepLimits()
        durable = Durable(
            name=f"palace-maintain-v{self.version}",
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=1,
            description="nights after which drawers are pruned",
            sparse=True,
        )
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=("pruned", "centroids"))
        self._views = views
        self._written = 0

    async def turn(self) -> None:
        """Work off the next tick; those of other sweeps are passed over."""
        limits = self._limits
        for message in await self._source.take(1, wait_s=limits.wait_s, window_s=limits.window_s):
            tick = tick_of(message, DECAY)
            if tick is None:
                await message.ack()
                continue
            self._leases.hold(message)
            async with self._leases.renewed():
                await self._views.wait_for(max(tick.seq, self._written), limits.views_wait_s, *NEEDS)
                await self._prune(tick)
                if datetime.fromtimestamp(tick.due_ms / 1_000, UTC).weekday() == _SUNDAY:
                    await self._compute_centroids(tick)
            await self._leases.ack(message)

    async def _prune(self, tick: Tick) -> None:
        ids = pruned(*await asyncio.to_thread(fading_in, self._views, tick.workspace_id, tick.due_ms))
        for at in range(0, len(ids), PRUNED_AT_ONCE):
            some = tuple(ids[at : at + PRUNED_AT_ONCE])
            await self._say(tick, DrawerPruned(drawer_ids=some), f"pruned/{some[0]}", f"{len(some)} drawers are pruned")
        self._counts["pruned"] += len(ids)

    async def _compute_centroids(self, tick: Tick) -> None:
        workspace_id = tick.workspace_id
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        if model is None:
            return
        for one in await asyncio.to_thread(new_centroids, self._views, workspace_id, model, tick.due_ms):
            said = CentroidComputed(
                memory_type=one.memory_type,
                model=model,
                vector=base64.b64encode(one.vector.tobytes()).decode(),
                samples=one.samples,
                source_hash=one.source_hash,
            )
            name = f"centroid/{model}/{one.memory_type}/{one.source_hash}"
            await self._say(tick, said, name, f"The centroid of {one.memory_type} has {one.samples} drawers")
            self._counts["centroids"] += 1

    async def _say(self, tick: Tick, said: ControlPayload, name: str, summary: str) -> None:
        cause = f"{tick.workspace_id}/{tick.due_ms // DAY_MS}"
        fact = encode_control(
            tick.workspace_id,
            said,
            fact_id=derived_id(self.name, self.version, cause, name),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=summary,
        )
        self._written = max(self._written, (await self.publish(fact)).seq)


def create(context: ReactorContext) -> Reactor | None:
    """The reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    return PalaceMaintainReactor(context.client, context.publisher, context.views, clock=context.clock)


REACTOR: Final = create
