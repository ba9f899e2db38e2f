"""Ranks drawers: the hits of the arms (words, vectors, knowledge graph) are united, ranked, and then cut to the limit.

``default``: own = lexical / best lexical + cosine / best cosine + graph / best graph, each over the drawers of the place; a
drawer without a vector counts by its words twice. score = (own + 0.3 * max(0, own of the drawer that its conversation filed
before - own)) * (1 + 0.02 * (importance - 3)): what follows a match often answers it. On locomo_dev recall@10 is .813, by
reciprocal ranks .763, and without the drawer before .783.

``palace-seed``: score = importance * recency * max(similarity, graph) + affinity (seed 5); similarity is the cosine, and
without vectors the BM25 score as a fraction of the best that a text could reach; graph is 1 for a drawer of a fact about
an entity that the query names, else 0; recency = 1 / (1 + days since the last read / 30), 0.5 if it was never read;
affinity is 0.1 for a drawer of the agent that asks.

Invariant: wing and room are applied inside the arms; a pure function of index, query and time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...schemas.operations.palace import PalaceRecipe
from ...schemas.rules.text import Analyzer
from ...schemas.timestamps import DAY_MS
from ..query.arms.lexical import K1
from ..query.asking import Query
from ..query.chunks.search import Floats, Words, best_of, cosine_floor, cosines_of
from .drawer_index import UNREAD, DrawerIndex, HotDrawer

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
    """

    query: Query
    limit: int
    wing: str | None = None
    room: str | None = None
    recipe: PalaceRecipe = PalaceRecipe.DEFAULT
    agent_id: str = ""
    now_ms: int = 0


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
        texts, mask = index.texts, index.mask(query.wing, query.room)
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
            has_score |= cosines >= cosine_floor(self._cosines[~lacking], self._index.model)
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
