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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from nats.aio.msg import Msg

from ...schemas.core import headers as h
from ...schemas.core.entry import MAX_SUMMARY
from ...schemas.core.ids import derived_id
from ...schemas.core.subjects import Family
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.palace.events import LAST_MS, DrawerFiled, DrawerReinforced
from ...schemas.palace.rules import DIARY, REINFORCE_ABOVE, REINFORCE_AMONG, REINFORCE_BOOST
from ...schemas.palace.tables import DRAWERS, LIVE_DRAWER
from ..reacting.backoff import doubled
from ..reacting.control_facts import encode_control
from ..reacting.pull import deliveries
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from .classify_reads import NEEDS, matrix_of
from .exchange_filing import ADDED_BY

PATIENCE: Final = 10
"""Deliveries from which a drawer no longer waits for the vectors of drawers that were filed before it; some 3 minutes."""
RETRY_LAST_S: Final = 60.0
_ADDED: Final = f"""SELECT drawer_id, entry_id, filed_ms FROM {DRAWERS}
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND entry_id IN (SELECT unnest(?)) AND memory_type <> '{DIARY}'
        AND added_by NOT IN ('{ADDED_BY}', 'mobile') AND imported_from = '' ORDER BY filed_ms, drawer_id"""
_LIVE: Final = f"""SELECT drawer_id, filed_ms, memory_type, v.vector FROM {DRAWERS} AS drawer LEFT JOIN {CHUNK_VECTORS} AS v
        ON v.workspace_id = drawer.workspace_id AND v.model = ? AND v.text_hash = drawer.text_hash
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} ORDER BY drawer_id"""


@dataclass(frozen=True, slots=True)
class ReinforceLimits(ViewsLimits):
    """Times of this reactor.

    Attributes:
        retry_s: Seconds of the first pause of a drawer that waits for vectors.
    """

    retry_s: float = 0.5


class _LiveDrawer(NamedTuple):
    """A live drawer; its vector is None until there is one, and empty if the model refuses the text."""

    drawer_id: str
    filed_ms: int
    memory_type: str
    vector: bytes | None


@dataclass(frozen=True, slots=True)
class _Embedded:
    """The drawers with vectors; ``vectors`` is (n, d) float32, L2-normalised."""

    ids: list[str]
    filed_ms: npt.NDArray[np.int64]
    in_diary: npt.NDArray[np.bool_]
    vectors: npt.NDArray[np.float32]

    @classmethod
    def of(cls, live: Sequence[_LiveDrawer]) -> _Embedded:
        """These, in their order."""
        return cls(
            [drawer.drawer_id for drawer in live],
            np.array([drawer.filed_ms for drawer in live], np.int64),
            np.array([drawer.memory_type == DIARY for drawer in live], np.bool_),
            matrix_of([drawer.vector or b"" for drawer in live]),
        )

    def similar(self, drawer_id: str, filed_ms: int) -> list[str]:
        """The ids of the earlier drawers that a drawer reinforces."""
        if drawer_id not in self.ids:
            return []
        own_index = self.ids.index(drawer_id)
        cosines = self.vectors @ self.vectors[own_index]
        cosines[self.in_diary | (self.filed_ms > filed_ms)] = -1.0
        cosines[own_index] = -1.0
        nearest = np.argsort(-cosines, kind="stable")[:REINFORCE_AMONG].tolist()
        return [self.ids[at] for at in nearest if cosines[at] > REINFORCE_ABOVE]


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
        for entry_id in await self._work(workspace_id, by_entry):
            delay_s = doubled(self._limits.retry_s, RETRY_LAST_S, deliveries(by_entry[entry_id]) - 1)
            await self._leases.put_off(by_entry[entry_id], delay_s)

    async def _work(self, workspace_id: str, messages: Mapping[str, Msg]) -> list[str]:
        """Compare drawers; returns the entries of those that wait for vectors."""
        rows = await asyncio.to_thread(self._views.rows, _ADDED, [workspace_id, list(messages)])
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id) if rows else None
        embedder = None if model is None else self._context.embedder_for(model)
        if embedder is None:
            return []
        live = [_LiveDrawer(*row) for row in await asyncio.to_thread(self._views.rows, _LIVE, [model, workspace_id])]
        lacking_ms = min((drawer.filed_ms for drawer in live if drawer.vector is None), default=LAST_MS + 1)
        embedded = _Embedded.of([drawer for drawer in live if drawer.vector])
        later = []
        for drawer_id, entry_id, filed_ms in rows:
            if lacking_ms <= filed_ms:
                if deliveries(messages[entry_id]) < PATIENCE:
                    later.append(entry_id)
                    continue
                await embedder.probe()  # wait for an unavailable model, but not for a text that it rejects
            self._counts["compared"] += 1
            await self._reinforce(workspace_id, drawer_id, entry_id, embedded.similar(drawer_id, filed_ms))
        return later

    async def _reinforce(self, workspace_id: str, added: str, cause: str, similar: list[str]) -> None:
        if not similar:
            return
        payload = DrawerReinforced(added=added, drawer_ids=tuple(similar), boost=REINFORCE_BOOST)
        fact = encode_control(
            workspace_id,
            payload,
            fact_id=derived_id(self.name, self.version, f"{workspace_id}/{added}"),
            cause=cause,
            reactor=self.identity,
            summary=f"{added} reinforces {len(similar)} drawers"[:MAX_SUMMARY],
        )
        await self.publish(fact)
        self._counts["reinforced"] += len(similar)


REACTORS: Final = {"palace_reinforce": PalaceReinforceReactor.create}
