"""Searches drawers in the hot indexes.

Invariant: without a working model, search answers without vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from ...schemas.operations.palace import PalaceRecipe
from ...schemas.ports import ViewReader
from ...schemas.rules.marks import same_marks
from ...schemas.rules.text import Analyzer
from ...schemas.timestamps import to_ms
from ..query.asking import query_of
from ..query.chunks.cache import CacheFigures, TextCache
from ..query.chunks.search import Floats
from ..query.query_embedding import QueryEmbedder
from .drawer_index import DrawerIndex, DrawerUses, HotDrawer, extend_drawers, load_drawers
from .ranking import DrawerQuery, RankedDrawer, alike_by_words, alike_drawers, rank_drawers

ALIKE_AMONG: Final = 50
"""Nearest drawers that are looked through for duplicates: several versions of one statement are near each other."""
DRAWERS_SHARE: Final = 4
"""Fraction (1/n) of the memory budget of hot indexes that is for drawers."""


class DrawerSearch:
    """The use-case.

    Args:
        views: Where drawers are read.
        analyzer: Turns queries into terms, as the fold of drawers does with texts.
        queries: Embeds queries.
        budget_bytes: Memory of all hot indexes of the node.
        clock: The time, UTC.
    """

    def __init__(
        self,
        views: ViewReader,
        analyzer: Analyzer,
        queries: QueryEmbedder,
        *,
        budget_bytes: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._cache: TextCache[DrawerIndex] = TextCache(
            views, budget_bytes // DRAWERS_SHARE, clock, load=load_drawers, extend=extend_drawers
        )
        self._analyzer = analyzer
        self._queries = queries
        self._clock = clock

    def close(self) -> None:
        """Drop the indexes."""
        self._cache.close()

    def figures(self) -> CacheFigures:
        """What the indexes hold."""
        return self._cache.figures()

    async def search(
        self,
        workspace_id: str,
        text: str,
        limit: int,
        *,
        wing: str | None = None,
        room: str | None = None,
        recipe: PalaceRecipe = PalaceRecipe.DEFAULT,
        agent_id: str = "",
        min_seq: int = 0,
    ) -> tuple[list[RankedDrawer], str | None]:
        """The best drawers of a place, and the model whose vectors were compared."""
        index, vector = await self._embedded(workspace_id, text, min_seq)
        query = query_of(text, self._analyzer, vector, None, None)
        drawer_query = DrawerQuery(query, limit, wing, room, recipe, agent_id, to_ms(self._clock()))
        return rank_drawers(index, drawer_query), None if vector is None else index.model

    async def important(
        self, workspace_id: str, wing: str | None, limit: int, min_seq: int = 0
    ) -> list[tuple[HotDrawer, str]]:
        """The most important drawers with their texts; of equal ones the newest, then by id."""
        return (await self._cache.get(workspace_id, min_seq)).important(wing, limit)

    async def uses(self, workspace_id: str) -> Mapping[str, DrawerUses]:
        """Entry of a drawer → how often it was read; those that were never read are not in it."""
        return (await self._cache.get(workspace_id)).uses

    async def alike(
        self, workspace_id: str, text: str, least: float, limit: int, min_seq: int = 0
    ) -> list[RankedDrawer]:
        """Drawers that say almost the same: by cosine, and by their words those that have no vector.

        A drawer with other numbers, dates, names or negations says something else.
        """
        index, vector = await self._embedded(workspace_id, text, min_seq)
        by_words = alike_by_words(index, self._analyzer, text, least, ALIKE_AMONG, embedded=vector is not None)
        by_meaning = [] if vector is None else alike_drawers(index, vector, least, ALIKE_AMONG)
        near = sorted([*by_words, *by_meaning], key=lambda hit: (-hit.similarity, hit.drawer.drawer_id))
        return [hit for hit in near if same_marks(text, hit.content)][:limit]

    async def _embedded(self, workspace_id: str, text: str, min_seq: int) -> tuple[DrawerIndex, Floats | None]:
        index = await self._cache.get(workspace_id, min_seq)
        embedded = await self._queries.embed(text, index.model) if len(index.texts.matrix) else None
        index = await self._cache.get(workspace_id, min_seq)
        same = embedded is not None and embedded.model == index.model
        return index, embedded.vector if same and embedded is not None else None
