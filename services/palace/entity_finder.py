"""Finds the entity that a description means, by the cosine of its vector.

Evidence: 14 entities with one fact each and 14 descriptions of them in other words ("the database host", "monitoring
dashboards"), MiniLM: the nearest entity is the right one for 9, 8 of them at .38 or above, and the nearest to 7
unrelated texts is at most at .19. A wrong one reaches .40.

Invariant: only entities whose vector is of the active model are found; without a model none is.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import numpy as np

from ...schemas.views import CHUNK_VECTORS
from ...schemas.views.entity_texts import entity_texts
from ..node import Node
from ..query.chunks.search import cosine_floor
from ..query.query_embedding import QueryVector

LEAST_COSINE: Final = 0.4
_VECTORS: Final = f"""SELECT text_hash, vector FROM {CHUNK_VECTORS}
    WHERE workspace_id = ? AND model = ? AND dim = ? AND text_hash IN (SELECT unnest(?::UBIGINT[]))"""


class Meant(NamedTuple):
    """An entity and its cosine with the description."""

    entity_id: str
    cosine: float


class EntityFinder:
    """The search."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._embed = node.recall.embed

    async def find(self, workspace_id: str, text: str) -> Meant | None:
        """The nearest entity, if it is near enough."""
        query = await self._embed(workspace_id, text)
        return None if query is None else await asyncio.to_thread(self._nearest, workspace_id, query)

    def _nearest(self, workspace_id: str, query: QueryVector) -> Meant | None:
        of = {entity_text.text_hash: entity_text.entity_id for entity_text in entity_texts(self._views, workspace_id)}
        rows = self._views.rows(_VECTORS, [workspace_id, query.model, len(query.vector), list(of)])
        if not rows:
            return None
        cosines = np.frombuffer(b"".join(row[1] for row in rows), "<f4").reshape(len(rows), -1) @ query.vector
        best = int(cosines.argmax())
        if cosines[best] < max(LEAST_COSINE, cosine_floor(cosines, query.model)):
            return None
        return Meant(of[rows[best][0]], float(cosines[best]))
