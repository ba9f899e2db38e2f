"""Searches drawers in the hot indexes.

Invariant: without a working model, search answers without vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import DAY_MS, to_ms
from ...schemas.palace.operations import PalaceRecipe
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.marks import same_marks
from ..documents.chunk_search import Floats, Words, best_of, cosine_floor, cosines_of
from ..index.query_embedding import QueryEmbedder
from ..index.texts import CacheFigures, TextCache
from ..recall.arms import K1
from ..recall.asking import Query, query_of
from .drawer_index import UNREAD, DrawerIndex, DrawerUses, HotDrawer, extend_drawers, load_drawers

# Ranks drawers: the hits of the arms (words, vectors, knowledge graph) are united, ranked, and then cut to the limit.


IMPORTANCE_SHARE: Final = 0.02
"""What one point of importance adds to the default score: 2 %, so that it decides between equal answers."""
MIDDLE_IMPORTANCE: Final = 3.0
DAYS_TO_HALF: Final = 30.0
NEVER_READ: Final = 0.5
AFFINITY: Final = 0.1
FOLLOWS: Final = 0.3
"""Share of the difference to the drawer before; .2 to .4 recall between .802 and .818."""
POOL: Final = 4
"""Drawers by similarity to which importance is applied, as a multiple of the limit."""
_ROUNDING: Final = 1e-6
"""Of float32."""


@dataclass(frozen=True, slots=True)
class RankedDrawer:
    """A drawer that was found."""

    drawer: HotDrawer
    content: str
    similarity: float
    score: float


@dataclass(frozen=True, slots=True)
class DrawerQuery:
    """A query for the drawers of a workspace.

    Attributes:
        agent_id: The agent that asks; empty if none.
        now_ms: When, milliseconds since the epoch.
        filed_by: Only drawers that this agent filed; None for all.
        least: The cosine from which a drawer that shares no word is a hit; ``cosine_floor`` if None.
    """

    query: Query
    limit: int
    wing: str | None = None
    room: str | None = None
    recipe: PalaceRecipe = PalaceRecipe.DEFAULT
    agent_id: str = ""
    now_ms: int = 0
    filed_by: str | None = None
    least: float | None = None


def rank_drawers(index: DrawerIndex, query: DrawerQuery) -> list[RankedDrawer]:
    """The best drawers: score descending, then newer, then by id."""
    arms = _Arms(index, query)
    scores = dict(arms.seed_scores() if query.recipe is PalaceRecipe.PALACE_SEED else arms.default_scores())
    best = sorted(scores, key=lambda slot: (-scores[slot], -index.at(slot).filed_ms, index.at(slot).drawer_id))
    return [
        RankedDrawer(index.at(slot), index.texts.text_of(slot).text, arms.similarity(slot), scores[slot])
        for slot in best[: query.limit]
    ]


def alike_drawers(index: DrawerIndex, vector: Floats, least: float, limit: int) -> list[RankedDrawer]:
    """The drawers whose cosine with a vector is at least ``least``, the most similar first."""
    cosines = cosines_of(index.texts, index.texts.live, vector)
    slots = np.flatnonzero(cosines >= least)
    best = best_of([index.texts], [slots], [cosines[slots]], limit)
    return [
        RankedDrawer(index.at(slot), index.texts.text_of(slot).text, min(1.0, cosine), cosine)
        for _, slot, cosine in best
    ]


def alike_by_words(
    index: DrawerIndex, analyzer: Analyzer, text: str, least: float, limit: int, *, embedded: bool
) -> list[RankedDrawer]:
    """The drawers whose counts of words have at least this cosine with those of a text.

    With ``embedded``, those that have a vector are left out.
    """
    texts = index.texts
    counts = Counter([*analyzer.terms(text), *analyzer.further_terms(text), *analyzer.stop_keys(text)])
    products = np.zeros(len(texts), np.float32)
    for held, count in zip(texts.postings.of(list(counts)), counts.values(), strict=True):
        products[held.once] += count
        products[held.often] += count * held.tf
    norm = np.sqrt(sum(count * count for count in counts.values())) or 1.0
    cosines = products / (norm * np.maximum(texts.norm, 1e-9))
    among = texts.live & (cosines >= least - _ROUNDING)
    if embedded:
        among &= texts.matrix.lacking(len(texts))
    slots = np.flatnonzero(among)
    best = best_of([texts], [slots], [cosines[slots]], limit)
    return [
        RankedDrawer(index.at(slot), texts.text_of(slot).text, min(1.0, cosine), cosine) for _, slot, cosine in best
    ]


class _Arms:
    """The scores of each arm for the drawers of a place."""

    def __init__(self, index: DrawerIndex, query: DrawerQuery) -> None:
        self._index = index
        self._asked = query
        texts, mask = index.texts, index.mask(query.wing, query.room, query.filed_by)
        self._mask = mask
        words = Words([texts], [mask])
        words.find(query.query)
        self._lexical = words.sums[0]
        self._best = sum(words.weights.values()) * (K1 + 1.0) or 1.0
        vector = query.query.vector
        self._cosines = None if vector is None else cosines_of(texts, mask, vector)
        mentioned = index.mentions.drawers(query.query.text, query.now_ms)
        self._graph = {
            slot: weight
            for drawer_id, weight in mentioned.items()
            if (slot := index.slot_of(drawer_id)) is not None and mask[slot]
        }

    def similarity(self, slot: int) -> float:
        """The cosine, else the BM25 score as a fraction; 0 to 1."""
        cosine = np.nan if self._cosines is None else float(self._cosines[slot])
        share = float(self._lexical[slot]) / self._best if np.isnan(cosine) else cosine
        return min(1.0, max(0.0, share))

    def default_scores(self) -> Iterable[tuple[int, float]]:
        """Slot and score by the default recipe."""
        lexical = self._lexical / (self._lexical.max(initial=0.0) or 1.0)
        own, has_score = lexical.copy(), lexical > 0.0
        if self._cosines is not None:
            lacking = np.isnan(self._cosines)
            cosines = np.where(lacking, 0.0, self._cosines)
            own += np.where(lacking, lexical, np.maximum(cosines, 0.0) / (cosines.max(initial=0.0) or 1.0))
            least = self._asked.least
            floor = cosine_floor(self._cosines[~lacking], self._index.model) if least is None else least
            has_score |= ~lacking & (cosines >= floor)
        most = max(self._graph.values(), default=1.0)
        for slot, weight in self._graph.items():
            own[slot] += weight / most
            has_score[slot] = True
        own[~has_score] = 0.0
        before = self._index.previous
        behind = np.where((before >= 0) & self._mask, own[before], 0.0)
        score = own + FOLLOWS * np.maximum(behind - own, 0.0)
        slots = np.flatnonzero(score)
        kept = slots[np.argsort(-score[slots], kind="stable")[: POOL * self._asked.limit]]
        for slot in kept.tolist():
            importance = self._index.at(slot).importance
            yield slot, float(score[slot]) * (1.0 + IMPORTANCE_SHARE * (importance - MIDDLE_IMPORTANCE))

    def seed_scores(self) -> Iterable[tuple[int, float]]:
        """Slot and score by the seed's formula."""
        pool = POOL * self._asked.limit
        near = self._by_words(pool) if self._cosines is None else self._by_meaning(pool)
        for slot in {*near, *self._graph}:
            drawer = self._index.at(slot)
            likeness = 1.0 if slot in self._graph else self.similarity(slot)
            affinity = AFFINITY if self._asked.agent_id and drawer.added_by_agent == self._asked.agent_id else 0.0
            yield slot, drawer.importance * self._recency(drawer) * likeness + affinity

    def _recency(self, drawer: HotDrawer) -> float:
        read_ms = self._index.uses.get(drawer.entry_id, UNREAD).last_ms
        if read_ms is None:
            return NEVER_READ
        days = max(0, self._asked.now_ms - read_ms) / DAY_MS
        return 1.0 / (1.0 + days / DAYS_TO_HALF)

    def _by_words(self, depth: int) -> Sequence[int]:
        return self._best_slots(np.flatnonzero(self._lexical), self._lexical, depth)

    def _by_meaning(self, depth: int) -> Sequence[int]:
        assert self._cosines is not None
        return self._best_slots(np.flatnonzero(~np.isnan(self._cosines)), self._cosines, depth)

    def _best_slots(self, slots: np.ndarray, scores: Floats, depth: int) -> Sequence[int]:
        return [slot for _, slot, _ in best_of([self._index.texts], [slots], [scores[slots]], depth)]


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

    @property
    def cache(self) -> TextCache[DrawerIndex]:
        """The hot indexes, for recall too."""
        return self._cache

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
