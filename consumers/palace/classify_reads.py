"""Reads of the cold path of the palace: drawers that wait, their neighbours, and the knowledge graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from nats.aio.msg import Msg

from ...schemas.core.derived import FLOAT_BYTES
from ...schemas.core.ports import DRAWER_KIND, Embedder, Finder, NearQuery, ViewReader
from ...schemas.core.timestamps import DAY_MS
from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION
from ...schemas.facts.rules import counted, is_single
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.palace.events import LAST_MS, DrawerState, PipelineTier
from ...schemas.palace.rules import (
    ACTIVE_MS,
    CENTROID_DAYS,
    CENTROID_LEAST,
    CENTROID_MOST,
    DECAY_AGE_DAYS,
    DIARY,
    Fading,
    source_hash,
)
from ...schemas.palace.tables import (
    ACTIVE_DRAWERS,
    DRAWER_CENTROIDS,
    DRAWER_TEXTS,
    DRAWER_USES,
    DRAWERS,
    DRAWERS_PROJECTION,
    IMPORTANCE_NOW,
    LIVE_DRAWER,
    UPKEEP,
)
from ...schemas.relations.judging import judge
from ...schemas.relations.rules import SUPERSEDES, Statement
from ..reacting.pull import deliveries, doubled
from ..reactor import ReactorContext

NEEDS: Final = (DRAWERS_PROJECTION, CHUNK_VECTORS_PROJECTION, VECTORS_PROJECTION, FACTS_PROJECTION)
ENRICH_FROM: Final = 3.0
"""Importance from which a drawer that no model classified gets its entities (contract of the palace, §4)."""
SAME_SUBJECT: Final = 0.5
"""Cosine that means "about the same thing" in the rule for updates: two facts of one subject and predicate are."""
_VECTOR: Final = f"""JOIN (
        SELECT text.key, vector FROM {DRAWER_TEXTS} AS text JOIN {CHUNK_VECTORS} USING (workspace_id, text_hash)
        WHERE workspace_id = ? AND model = ? AND dim > 0) AS v ON v.key = drawer.key"""
_WAITING: Final = f"""SELECT drawer.drawer_id, drawer.entry_id, content, memory_type, importance, pipeline_tier, state,
        added_by, filed_ms, drawer.since_seq, coalesce(rejected, 0), coalesce(asked_alone, false),
        coalesce(linked, false)
    FROM {DRAWERS} AS drawer {UPKEEP}
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND drawer.entry_id IN (SELECT unnest(?))"""
_RAW: Final = f"""SELECT drawer_id, entry_id FROM {DRAWERS}
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.RAW}' AND drawer_id IN (SELECT unnest(?))"""
_ENTITIES: Final = f"SELECT entity_id, name FROM {KG_ENTITIES} WHERE workspace_id = ? AND until_seq IS NULL"
_FACTS: Final = f"""SELECT subject_id, predicate, object_id, fact_id, from_ms, asserted_by_type, source_drawer_id
    FROM {FACTS} WHERE workspace_id = ? AND until_seq IS NULL AND valid_to IS NULL AND namespace = ''
    ORDER BY asserted_seq"""
_FACT_COUNT: Final = f"SELECT count(*) FROM {FACTS} WHERE workspace_id = ? AND until_seq IS NULL"
_FADING: Final = f"""SELECT drawer.drawer_id, {IMPORTANCE_NOW}, coalesce(access_count, 0) FROM {DRAWERS} AS drawer {UPKEEP}
    LEFT JOIN {DRAWER_USES} AS uses ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.PROCESSED}' AND memory_type <> '{DIARY}'
        AND filed_ms < ?"""
_LIVE: Final = f"SELECT count(*) FROM {DRAWERS} WHERE workspace_id = ? AND {LIVE_DRAWER}"
_LABELLED: Final = f"""SELECT memory_type, drawer.drawer_id, v.vector FROM {DRAWERS} AS drawer {UPKEEP} {_VECTOR}
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.PROCESSED}'
        AND pipeline_tier = '{PipelineTier.LLM}' AND memory_type NOT IN ('', '{DIARY}') AND filed_ms >= ?
    QUALIFY row_number() OVER (
        PARTITION BY memory_type ORDER BY {IMPORTANCE_NOW} DESC, filed_ms DESC, drawer.drawer_id) <= {CENTROID_MOST}
    ORDER BY memory_type, drawer.drawer_id"""
_CENTROIDS: Final = f"SELECT memory_type, source_hash FROM {DRAWER_CENTROIDS} WHERE workspace_id = ? AND model = ?"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A live drawer and its state in the cold path."""

    drawer_id: str
    entry_id: str
    content: str
    memory_type: str
    importance: float
    tier: str
    state: str
    added_by: str
    filed_ms: int
    since_seq: int
    rejected: int
    asked_alone: bool
    linked: bool

    @property
    def text(self) -> str:
        """What is embedded."""
        return self.content

    @property
    def raw(self) -> bool:
        """Whether its type is not decided."""
        return self.state == DrawerState.RAW

    @property
    def to_enrich(self) -> bool:
        """Whether its type is decided, so that a model has to find only its entities."""
        decided = self.state == DrawerState.PROCESSED and self.tier != PipelineTier.LLM
        return decided and not self.linked and self.importance >= ENRICH_FROM

    @property
    def to_compare(self) -> bool:
        """Whether, once it is classified, it is compared with its neighbours."""
        return self.state == DrawerState.PROCESSED and self.memory_type != DIARY

    @property
    def by_model(self) -> bool:
        """Whether a model classified it, so that a model compares it, too."""
        return self.tier == PipelineTier.LLM


Triple = tuple[str, str, str]
"""Subject, predicate and object, entities by their ids."""


class OpenFact(NamedTuple):
    """A fact of the graph without an end; ``asserted_by`` is the type of its actor."""

    fact_id: str
    from_ms: int | None
    asserted_by: str
    drawer_id: str | None


@dataclass(slots=True)
class Graph:
    """What decides whether a statement is new to the knowledge graph, and which facts it ends.

    Attributes:
        entities: Their names by their ids.
    """

    entities: dict[str, str]
    open: dict[Triple, OpenFact]
    facts: int

    def rivals(self, triple: Triple, text: str) -> list[Triple]:
        """The facts with another object of the same subject and predicate that a new one ends.

        Args:
            triple: The new fact.
            text: The text that states it. If the predicate has several objects at a time, those end that the text says
                hold no longer ("Postgres instead of MySQL").
        """
        subject, predicate, object_ = triple
        others = [fact for fact in self.open if fact[:2] == (subject, predicate) and fact[2] != object_]
        same = counted((subject, value) for subject, name, value in self.open if name == predicate) if others else {}
        if is_single(predicate, same):
            return others
        return [fact for fact in others if self._retired(fact, text)]

    def _retired(self, triple: Triple, text: str) -> bool:
        subject, predicate, object_ = triple
        stated = f"{self.entities.get(subject, '')} {predicate.replace('_', ' ')} {self.entities.get(object_, '')}"
        verdict = judge(Statement(text), Statement(stated), SUPERSEDES, cosine=SAME_SUBJECT)
        return verdict is not None and verdict.retires


@dataclass(frozen=True, slots=True)
class Centroid:
    """A type's mean vector, and the hash of the drawers that it is of."""

    memory_type: str
    vector: npt.NDArray[np.float32]
    samples: int
    source_hash: str


def waiting_in(views: ViewReader, workspace_id: str, entry_ids: Sequence[str]) -> dict[str, Waiting]:
    """The live drawers that these entries filed, by entry."""
    return {row[1]: Waiting(*row) for row in views.rows(_WAITING, [workspace_id, list(entry_ids)])}


def raw_entries_of(views: ViewReader, workspace_id: str, drawer_ids: Sequence[str]) -> dict[str, str]:
    """The entries that filed raw drawers, by drawer."""
    return dict(views.rows(_RAW, [workspace_id, list(drawer_ids)])) if drawer_ids else {}


def graph_of(views: ViewReader, workspace_id: str) -> Graph:
    """The knowledge graph of a workspace."""
    facts = views.rows(_FACTS, [workspace_id])
    entities = dict(views.rows(_ENTITIES, [workspace_id]))
    [(count,)] = views.rows(_FACT_COUNT, [workspace_id])
    return Graph(entities, {row[:3]: OpenFact(*row[3:]) for row in facts}, int(count))


def fading_in(views: ViewReader, workspace_id: str, now_ms: int) -> tuple[list[Fading], int]:
    """The processed drawers that are old enough to be pruned, and the number of live ones; none in a silent workspace."""
    if not views.rows(ACTIVE_DRAWERS, [workspace_id, now_ms - ACTIVE_MS]):
        return [], 0
    before_ms = now_ms - DECAY_AGE_DAYS * DAY_MS
    fading = [Fading(row[0], float(row[1]), int(row[2])) for row in views.rows(_FADING, [workspace_id, before_ms])]
    return fading, int(views.rows(_LIVE, [workspace_id])[0][0])


def new_centroids(views: ViewReader, workspace_id: str, model: str, now_ms: int) -> list[Centroid]:
    """The centroids of types with enough drawers that a model classified, if these drawers changed since the last time."""
    known = {row[0]: row[1] for row in views.rows(_CENTROIDS, [workspace_id, model])}
    labelled: dict[str, list[tuple[str, bytes]]] = {}
    for memory_type, drawer_id, vector in views.rows(
        _LABELLED, [workspace_id, model, workspace_id, now_ms - CENTROID_DAYS * DAY_MS]
    ):
        labelled.setdefault(memory_type, []).append((drawer_id, vector))
    centroids = []
    for memory_type, drawers in labelled.items():
        content_hash = source_hash([drawer_id for drawer_id, _ in drawers])
        if len(drawers) >= CENTROID_LEAST and known.get(memory_type) != content_hash:
            mean = matrix_of([vector for _, vector in drawers]).mean(axis=0, dtype=np.float64).astype("<f4")
            centroids.append(Centroid(memory_type, mean, len(drawers), content_hash))
    return centroids


def matrix_of(vectors: Sequence[bytes]) -> npt.NDArray[np.float32]:
    """Vectors as (n, d) float32."""
    width = len(vectors[0]) // FLOAT_BYTES if vectors else 0
    return np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), width)


# The drawers near a drawer, as the reactors of the palace compare it: when they are complete, and which of them count.
#
# Invariant: a drawer is compared once every live drawer that was filed before it, itself included, has a vector or
# cannot have one, so that no pair is left out because ``embed_chunks`` was slower.


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
