"""The drawers near a drawer, as the reactors of the palace compare it: when they are complete, and which of them count.

Invariant: a drawer is compared once every live drawer that was filed before it, itself included, has a vector or cannot have
one, so that no pair is left out because ``embed_chunks`` was slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nats.aio.msg import Msg

from ...schemas.core.ports import DRAWER_KIND, Embedder, Finder, NearQuery, ViewReader
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.palace.events import LAST_MS, DrawerState
from ...schemas.palace.rules import DIARY
from ...schemas.palace.tables import DRAWER_TEXTS, DRAWERS, LIVE_DRAWER
from ..reacting.backoff import doubled
from ..reacting.pull import deliveries
from ..reactor import ReactorContext

PATIENCE: Final = 10
"""Deliveries from which a drawer no longer waits for the vectors of drawers that were filed before it; some 3 minutes."""
RETRY_FIRST_S, RETRY_LAST_S = 0.5, 60.0
MORE: Final = 4
"""How many times more are asked for while too few of the nearest count."""
_LACKING: Final = f"""SELECT min(ts_ms) FROM {DRAWER_TEXTS} AS drawer
    WHERE workspace_id = $1 AND NOT EXISTS (
        SELECT 1 FROM {CHUNK_VECTORS} AS v
        WHERE v.workspace_id = $1 AND v.model = $2 AND v.text_hash = drawer.text_hash)"""
_NEAR: Final = f"""SELECT drawer_id, filed_ms, memory_type, state = '{DrawerState.PROCESSED}', content FROM {DRAWERS}
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND memory_type <> '{DIARY}' AND drawer_id IN (SELECT unnest(?))"""


@dataclass(frozen=True, slots=True)
class NearDrawer:
    """A live drawer that is near another one; no diary."""

    drawer_id: str
    filed_ms: int
    memory_type: str
    processed: bool
    content: str
    cosine: float


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of drawers in one workspace.

    Attributes:
        model: The active model.
        embedder: What runs it here; None if nothing does.
        lacking_ms: When the first live drawer was filed that has no vector yet.
    """

    views: ViewReader
    finder: Finder
    workspace_id: str
    model: str
    embedder: Embedder | None
    lacking_ms: int

    @classmethod
    async def of(cls, context: ReactorContext, views: ViewReader, workspace_id: str) -> Neighbours | None:
        """Those of a workspace; None without an active model."""
        model = active_in(await asyncio.to_thread(read_active_models, views), workspace_id)
        if model is None or context.finder is None:
            return None
        [(lacking_ms,)] = await asyncio.to_thread(views.rows, _LACKING, [workspace_id, model])
        least_ms = LAST_MS + 1 if lacking_ms is None else int(lacking_ms)
        return cls(views, context.finder, workspace_id, model, context.embedder_for(model), least_ms)

    async def wait_s(self, message: Msg, filed_ms: int, first_s: float = RETRY_FIRST_S) -> float | None:
        """Seconds until a drawer is looked at again, because drawers filed up to it lack vectors; None if none will get one.

        Raises:
            EmbedderError: The model is unavailable; a text that it rejects is not waited for any longer.
        """
        if self.embedder is None or self.lacking_ms > filed_ms:
            return None
        if deliveries(message) < PATIENCE:
            return doubled(first_s, RETRY_LAST_S, deliveries(message) - 1)
        await self.embedder.probe()
        return None

    async def nearest(
        self, drawer_id: str, k: int, least: float, counts: Callable[[NearDrawer], bool]
    ) -> list[NearDrawer]:
        """The nearest ``k`` drawers that count, the nearest first."""
        asked = k
        while True:
            query = NearQuery(DRAWER_KIND, self.workspace_id, self.model, asked, least, items=[drawer_id])
            [near] = await self.finder.nearest(query)
            ids = [text.item for text in near]
            rows = await asyncio.to_thread(self.views.rows, _NEAR, [self.workspace_id, ids])
            cosines = {text.item: text.cosine for text in near}
            live = {row[0]: NearDrawer(*[*row, cosines[row[0]]]) for row in rows}
            drawers = [live[text.item] for text in near if text.item in live and counts(live[text.item])]
            if len(drawers) >= k or len(near) < asked:
                return drawers[:k]
            asked *= MORE
