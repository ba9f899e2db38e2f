"""Reinforces drawers that are similar to one that was added by hand (contract of the palace, §5).

Of the five nearest live drawers that were filed before it, those with a cosine above 0.7 gain 0.5 of importance. Only
``palace add`` reinforces; conversations, diaries, devices and imports do not. Entries of a diary gain nothing.

Invariants: a drawer reinforces once, however often it is added or the reactor runs, because the id of the event follows
from the drawer. A drawer that is added while there is no embedding model never reinforces.

Durable: ack policy explicit, ack wait ``ReinforceLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, at most
``max_ack_pending`` unacked; in stream order, except for drawers that wait for the vectors of earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from nats.aio.msg import Msg

from ...schemas.core import headers as h
from ...schemas.core.subjects import Family
from ...schemas.palace.events import DrawerFiled, DrawerReinforced
from ...schemas.palace.rules import DIARY, REINFORCE_ABOVE, REINFORCE_AMONG, REINFORCE_BOOST
from ...schemas.palace.tables import DRAWERS, LIVE_DRAWER
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from .classify_reads import NEEDS
from .exchange_filing import ADDED_BY
from .neighbours import RETRY_FIRST_S, NearDrawer, Neighbours

_ADDED: Final = f"""SELECT drawer_id, entry_id, filed_ms FROM {DRAWERS}
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND entry_id IN (SELECT unnest(?)) AND memory_type <> '{DIARY}'
        AND added_by NOT IN ('{ADDED_BY}', 'mobile') AND imported_from = '' ORDER BY filed_ms, drawer_id"""


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
        await self.record(workspace_id, payload, 0, cause=cause, summary=summary, key=added)
        self._counts["reinforced"] += len(similar)


def _is_earlier(filed_ms: int, drawer: NearDrawer) -> bool:
    return drawer.filed_ms <= filed_ms


REACTORS: Final = {"palace_reinforce": PalaceReinforceReactor.create}
