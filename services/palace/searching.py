"""Searches drawers in the hot indexes.

Invariant: without a working model, search answers without vectors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from ...schemas.core.ports import NearQuery, NearText
from ...schemas.core.timestamps import DAY_MS, to_ms
from ...schemas.palace.operations import PalaceRecipe
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.marks import same_marks
from ..index.cache import HotCache
from ..index.query_embedding import QueryEmbedder
from ..index.vectors import NO_ROW, Vectors, normalised
from ..recall.arms import ranked
from ..recall.asking import Query, query_of
from ..recall.finding import TextHit, alike, find, of_same_words
from ..recall.recipes import PALACE, PALACE_SEED
from .drawer_index import UNREAD, DrawerIndex, DrawerUses, HotDrawer, drawer_indexes

# Ranks drawers: what the search finds by words, vectors and the knowledge graph is ranked, and then cut to the limit.


IMPORTANCE_SHARE: Final = 0.02
"""What one point of importance adds to the default score: 2 %, so that it decides between equal answers."""
MIDDLE_IMPORTANCE: Final = 3.0
DAYS_TO_HALF: Final = 30.0
NEVER_READ: Final = 0.5
AFFINITY: Final = 0.1
POOL: Final = 4
"""Drawers by similarity to which importance is applied, as a multiple of the limit."""


@dataclass(frozen=True, slots=True)
class RankedDrawer:
    """A drawer that was found."""

    drawer: HotDrawer
    slot: int
    similarity: float
    score: float
    content: str = ""


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
    scoped = index.within(query.wing, query.room)
    mentioned = {
        slot: weight
        for drawer_id, weight in index.mentions.drawers(query.query.text, query.now_ms).items()
        if (slot := index.slot_of(drawer_id)) is not None and (scoped.mask is None or scoped.mask[slot])
    }
    seed = query.recipe is PalaceRecipe.PALACE_SEED
    recipe = PALACE_SEED if seed else PALACE
    among = None
    if query.filed_by is not None:
        among = np.zeros(len(index), bool)
        own = [key for key, drawer in index.drawers.items() if drawer.added_by_agent == query.filed_by]
        among[[index.slots[key][0] for key in own]] = True
    pool = find(
        index,
        scoped,
        query.query,
        recipe,
        POOL * query.limit,
        beside=mentioned,
        before=index.previous,
        among=among,
        least=query.least,
    )

    def ranked(hit: TextHit) -> RankedDrawer:
        drawer, similarity = index.at(hit.slot), pool.similarity(hit)
        score = hit.score * (1.0 + IMPORTANCE_SHARE * (drawer.importance - MIDDLE_IMPORTANCE))
        if seed:
            nearness = 1.0 if hit.slot in mentioned else similarity
            affinity = AFFINITY if query.agent_id and drawer.added_by_agent == query.agent_id else 0.0
            score = drawer.importance * _recency(index, drawer, query.now_ms) * nearness + affinity
        return RankedDrawer(drawer, hit.slot, similarity, score)

    best = sorted(map(ranked, pool.hits), key=lambda hit: (-hit.score, -hit.drawer.filed_ms, hit.drawer.drawer_id))
    return [replace(hit, content=index.text_of(hit.slot).text) for hit in best[: query.limit]]


def _recency(index: DrawerIndex, drawer: HotDrawer, now_ms: int) -> float:
    read_ms = index.uses.get(drawer.entry_id, UNREAD).last_ms
    if read_ms is None:
        return NEVER_READ
    return 1.0 / (1.0 + max(0, now_ms - read_ms) / DAY_MS / DAYS_TO_HALF)


ALIKE_AMONG: Final = 50
"""Nearest drawers that are looked through for duplicates: several versions of one statement are near each other."""


class DrawerSearch:
    """The use-case.

    Args:
        cache: The hot indexes.
        analyzer: Turns queries into terms, as the fold of drawers does with texts.
        queries: Embeds queries.
        clock: The time, UTC.
    """

    def __init__(
        self, cache: HotCache, analyzer: Analyzer, queries: QueryEmbedder, *, clock: Callable[[], datetime]
    ) -> None:
        self._indexes = drawer_indexes(cache)
        self._analyzer = analyzer
        self._queries = queries
        self._clock = clock

    def figures(self) -> dict[str, int]:
        """What the indexes hold, for ``status``: workspaces, chunks, bytes, budget_bytes."""
        return self._indexes.figures("chunks")

    async def index(self, workspace_id: str, min_seq: int = 0) -> DrawerIndex:
        """The drawers of a workspace; use it before the next ``await``."""
        return await self._indexes.get(workspace_id, min_seq)

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
        return (await self._indexes.get(workspace_id, min_seq)).important(wing, limit)

    async def uses(self, workspace_id: str) -> Mapping[str, DrawerUses]:
        """Entry of a drawer → how often it was read; those that were never read are not in it."""
        return (await self._indexes.get(workspace_id)).uses

    async def alike(
        self, workspace_id: str, text: str, least: float, limit: int, min_seq: int = 0
    ) -> list[RankedDrawer]:
        """Drawers that say almost the same: by cosine, and by their words those that have no vector.

        A drawer with other numbers, dates, names or negations says something else.
        """
        index, vector = await self._embedded(workspace_id, text, min_seq)
        terms = (self._analyzer.terms, self._analyzer.further_terms, self._analyzer.stop_keys)
        counts = Counter(term for terms_of in terms for term in terms_of(text))
        hits = of_same_words(index, counts, least, ALIKE_AMONG, without_vector=vector is not None)
        if vector is not None:
            hits += alike(index, vector, least, ALIKE_AMONG)
        near = [
            RankedDrawer(index.at(hit.slot), hit.slot, min(1.0, hit.score), hit.score, index.text_of(hit.slot).text)
            for hit in hits
        ]
        near.sort(key=lambda hit: (-hit.similarity, hit.drawer.drawer_id))
        return [hit for hit in near if same_marks(text, hit.content)][:limit]

    async def _embedded(self, workspace_id: str, text: str, min_seq: int) -> tuple[DrawerIndex, Vectors | None]:
        index = await self._indexes.get(workspace_id, min_seq)
        embedded = await self._queries.embed(text, index.model) if len(index.vectors) else None
        index = await self._indexes.get(workspace_id, min_seq)
        same = embedded is not None and embedded.model == index.model
        return index, embedded.vector if same and embedded is not None else None


# Finds the drawers nearest to vectors or drawers in the hot index, for reactors (``Finder``).
#
# Invariant: only live drawers with a vector of the workspace's active model are near.


class NearDrawers:
    """Finds drawers for ``Finder``; the comparison runs in a thread."""

    def __init__(self, search: DrawerSearch) -> None:
        self._search = search

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """See ``Finder.nearest``."""
        index = await self._search.index(query.workspace_id, query.before)
        matrix, live = index.vectors, index.live
        own = [index.slot_of(item) for item in query.items]
        held = [None if slot is None else index.vector_of(slot) for slot in own]
        vectors = [np.frombuffer(vector, "<f4") for vector in query.vectors]
        vectors += [np.zeros(0, np.float32) if vector is None else vector[0] for vector in held]
        known = [at for at, vector in enumerate(vectors) if len(vector) == matrix.dim]
        answers: list[list[NearText]] = [[] for _ in vectors]
        if index.model != query.model or not known:
            return answers
        counts = (matrix.doc != NO_ROW) & live[matrix.doc]
        if query.before:
            counts &= matrix.fact_seq < query.before
        rows = np.flatnonzero(counts)
        compared = normalised(np.stack([vectors[at] for at in known]))
        cosines = await asyncio.to_thread(_cosines, matrix.vectors, compared)
        slots = matrix.doc[rows].astype(np.intp)
        for at, scores in zip(known, cosines[:, rows], strict=True):
            itself = own[at - len(query.vectors)] if at >= len(query.vectors) else None
            near = scores >= query.least
            if itself is not None:
                near &= slots != itself
            answers[at] = _best(index, slots[near], scores[near], query.k)
        return answers


def _cosines(vectors: Vectors, compared: Vectors) -> Vectors:
    """(m, n) float32 cosines of m vectors with the n of a matrix."""
    cosines: Vectors = compared @ vectors.T
    return cosines


def _best(index: DrawerIndex, slots: np.ndarray, scores: Vectors, k: int) -> list[NearText]:
    """The best of some slots, without drawers that were removed meanwhile."""
    live = index.live[slots]
    slots, scores = slots[live], scores[live]
    return [
        NearText(index.at(int(slots[place])).drawer_id, float(scores[place]))
        for place in ranked(index, slots, scores, k).tolist()
    ]
