"""BM25 and similarity over the drawers of a workspace, in memory.

score(d) = sum over query terms t of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg)), as in
``query/arms/lexical``; similarity = score / sum of idf(t) * (k1 + 1), which no text reaches: 0 to 1.

Invariant: an index holds the live drawers as of its last refresh, which reads only what changed since the one before.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Final

from ...schemas.ports import ViewReader
from ...schemas.rules.text import Analyzer
from ...schemas.views.drawers import DRAWERS, DRAWERS_PROJECTION, LIVE_DRAWER
from ..query.arms.lexical import K1, B, idf_of

MOST_INDEXES: Final = 32
"""Workspaces of which the words stay in memory; 10,000 drawers of 500 characters take about 60 MB."""
_ENDED: Final = f"SELECT DISTINCT drawer_id FROM {DRAWERS} WHERE workspace_id = ? AND until_seq > ?"
_CHANGED: Final = f"""SELECT drawer_id, wing, room, content, {LIVE_DRAWER} FROM {DRAWERS}
    WHERE workspace_id = ? AND until_seq IS NULL AND since_seq > ?"""


@dataclass(frozen=True, slots=True)
class Likeness:
    """A drawer and how much it resembles the text asked for, 0 to 1."""

    drawer_id: str
    similarity: float


@dataclass(frozen=True, slots=True)
class _Words:
    wing: str
    room: str
    counts: Counter[int]
    length: int
    norm: float


class DrawerWords:
    """The words of the drawers of one workspace."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._drawers: dict[str, _Words] = {}
        self._holding: dict[int, set[str]] = {}
        self._total = 0
        self.seq = 0

    def __len__(self) -> int:
        return len(self._drawers)

    def refresh(self, views: ViewReader, workspace_id: str) -> None:
        """Take in what changed since the last refresh; blocking."""
        seq = views.view_seq(DRAWERS_PROJECTION)
        if seq == self.seq:
            return
        for (drawer_id,) in views.rows(_ENDED, [workspace_id, self.seq]):
            self._remove(drawer_id)
        for drawer_id, wing, room, content, live in views.rows(_CHANGED, [workspace_id, self.seq]):
            self._remove(drawer_id)
            if live:
                self._add(drawer_id, wing, room, content)
        self.seq = seq

    def search(self, query: str, limit: int, wing: str | None, room: str | None) -> list[Likeness]:
        """The best drawers for a query; ties by id."""
        terms = list(dict.fromkeys(self._terms(query)))
        if not self._drawers or not terms:
            return []
        average = self._total / len(self._drawers)
        scores: dict[str, float] = {}
        best = 0.0
        for term in terms:
            holding = self._holding.get(term, set())
            gain = idf_of(len(holding), len(self._drawers)) * (K1 + 1.0)
            best += gain
            for drawer_id in holding:
                words = self._drawers[drawer_id]
                tf = words.counts[term]
                share = gain * tf / (tf + K1 * (1.0 - B + B * words.length / average))
                scores[drawer_id] = scores.get(drawer_id, 0.0) + share
        found = (
            Likeness(drawer_id, score / best)
            for drawer_id, score in scores.items()
            if wing in (None, self._drawers[drawer_id].wing) and room in (None, self._drawers[drawer_id].room)
        )
        return _best(found, limit)

    def alike(self, text: str, least: float, limit: int) -> list[Likeness]:
        """Drawers whose counts of words have at least this cosine with those of a text."""
        counts = Counter(self._terms(text))
        norm = _norm(counts)
        products: Counter[str] = Counter()
        for term, count in counts.items():
            for drawer_id in self._holding.get(term, ()):
                products[drawer_id] += count * self._drawers[drawer_id].counts[term]
        cosines = (Likeness(one, min(1.0, dot / norm / self._drawers[one].norm)) for one, dot in products.items())
        return _best((one for one in cosines if one.similarity >= least), limit)

    def _terms(self, text: str) -> list[int]:
        return [*self._analyzer.terms(text), *self._analyzer.further_terms(text)]

    def _add(self, drawer_id: str, wing: str, room: str, content: str) -> None:
        counts = Counter(self._terms(content))
        words = self._drawers[drawer_id] = _Words(wing, room, counts, counts.total(), _norm(counts))
        self._total += words.length
        for term in counts:
            self._holding.setdefault(term, set()).add(drawer_id)

    def _remove(self, drawer_id: str) -> None:
        words = self._drawers.pop(drawer_id, None)
        if words is None:
            return
        self._total -= words.length
        for term in words.counts:
            holding = self._holding[term]
            holding.discard(drawer_id)
            if not holding:
                del self._holding[term]


class DrawerSearch:
    """The indexes of the workspaces in use; blocking, for worker threads.

    Args:
        views: Where drawers are read.
        analyzer: Turns texts into terms.
    """

    def __init__(self, views: ViewReader, analyzer: Analyzer) -> None:
        self._views = views
        self._analyzer = analyzer
        self._indexes: OrderedDict[str, DrawerWords] = OrderedDict()
        self._generation = -1
        self._lock = Lock()

    def search(self, workspace_id: str, query: str, limit: int, wing: str | None, room: str | None) -> list[Likeness]:
        """As ``DrawerWords.search``, over the drawers as the views have them now."""
        with self._lock:
            return self._fresh(workspace_id).search(query, limit, wing, room)

    def alike(self, workspace_id: str, text: str, least: float, limit: int) -> list[Likeness]:
        """As ``DrawerWords.alike``."""
        with self._lock:
            return self._fresh(workspace_id).alike(text, least, limit)

    def _fresh(self, workspace_id: str) -> DrawerWords:
        if self._generation != self._views.generation:
            self._generation = self._views.generation
            self._indexes.clear()
        index = self._indexes.setdefault(workspace_id, DrawerWords(self._analyzer))
        self._indexes.move_to_end(workspace_id)
        while len(self._indexes) > MOST_INDEXES:
            self._indexes.popitem(last=False)
        index.refresh(self._views, workspace_id)
        return index


def _best(found: Iterable[Likeness], limit: int) -> list[Likeness]:
    return sorted(found, key=lambda one: (-one.similarity, one.drawer_id))[:limit]


def _norm(counts: Counter[int]) -> float:
    return math.sqrt(sum(count * count for count in counts.values()))
