"""The facts of a workspace in memory: found by their words and their vectors, with the conflicts among them.

Invariant: ended facts are in it; whether a fact holds depends on the time of the request.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION
from ...schemas.facts.rules import Claim, Conflict, conflicts
from ...schemas.facts.tables import FACT_TEXTS, FACTS, FACTS_PROJECTION, KG_ENTITIES, FactRow
from ...schemas.text.analyzer import Analyzer
from ..index.arrays import GrowableArray
from ..index.arrow import values_of
from ..index.cache import HotCache, Indexes
from ..index.query_embedding import QueryVector
from ..index.rows import Rows
from ..index.shelf import TEXT_COLUMNS, Shelf, TextSlot
from ..recall.asking import Query
from ..recall.finding import TextHit, find
from ..recall.recipes import FACTS as FACTS_RECIPE

FACT_BYTES: Final = 2_000
"""Memory of a fact beside its text: 10,000 take about 30 MB with it."""
_EARLIEST: Final = -(2**62)
_LATEST: Final = 2**62
_SECOND_MS: Final = 1_000
"""An end names a whole second."""
_ENTITY: Final = ("entity_id", "name", "alias_of", "until_seq")


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A fact with the names of its ends.

    Attributes:
        row: Its row.
        subject: Name of the subject.
        subject_root: Id of the subject, that of the entity if it was named by an alias.
        object: Name of the object.
        object_root: Id of the object, likewise.
    """

    row: FactRow
    subject: str
    subject_root: str
    object: str
    object_root: str

    @property
    def text(self) -> str:
        """The fact in words."""
        return self.row.text or f"{self.subject} {self.row.predicate} {self.object}"

    def holds(self, now_ms: int) -> bool:
        """Whether it holds at a time; both ends included."""
        row = self.row
        return (row.from_ms is None or row.from_ms <= now_ms) and (row.to_ms is None or now_ms < row.to_ms + _SECOND_MS)

    @property
    def since_ms(self) -> int:
        """From when on it holds, as far as that is known."""
        return self.row.asserted_ms if self.row.from_ms is None else self.row.from_ms

    @property
    def slot(self) -> tuple[str, str]:
        """Subject and predicate: facts that share them give one thing values."""
        return self.subject_root, self.row.predicate.casefold()

    def claim(self) -> Claim:
        """The fact as it is compared with others."""
        row = self.row
        return Claim(
            row.fact_id,
            row.namespace,
            self.subject_root,
            row.predicate.casefold(),
            self.object_root,
            self.text,
            row.single_valued,
        )


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact and how well it matches a text, 0 to 1."""

    fact: KnownFact
    similarity: float


class FactIndex(Shelf):
    """The facts of a workspace; see ``Shelf``.

    Args:
        analyzer: Turns queries into terms, as the fold of facts does with their texts.
        workspace_id: The workspace.
        model: The model whose vectors it holds; None for none.
    """

    needed = frozenset((FACTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
    tables = (KG_ENTITIES, FACTS, FACT_TEXTS, CHUNK_VECTORS)

    def __init__(self, analyzer: Analyzer, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self._analyzer = analyzer
        self._facts: dict[int, KnownFact] = {}
        self._key_of: dict[str, int] = {}
        self._entities: dict[str, tuple[str, str | None]] = {}  # entity → name, and the entity that it is an alias of
        self._about: defaultdict[str, set[int]] = defaultdict(set)  # entity → facts
        self._conflicts: Conflicts | None = None
        self._changes = 0
        self._from_ms = GrowableArray(np.int64)
        self._until_ms = GrowableArray(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes held; those of dictionaries are estimated."""
        return super().nbytes + FACT_BYTES * len(self._facts)

    def take(self, rows: Rows) -> None:
        """Take in entities, facts, their texts and vectors."""
        changed = self._take_entities(rows)
        written = {key: self._facts[key].row for key in changed}
        facts = rows.of(FACTS, *FactRow._fields)
        if facts is not None:
            columns = (values_of(facts, name) for name in FactRow._fields)
            written |= {row.key: row for row in map(FactRow, *columns) if row.until_seq is None}
        for row in written.values():
            self._facts[row.key] = KnownFact(row, *self._meant(row.subject_id), *self._meant(row.object_id))
            self._key_of[row.fact_id] = row.key
            for end in (row.subject_id, row.object_id):
                self._about[end].add(row.key)
            self._conflicts = None
            self._changes += 1
        texts = rows.of(FACT_TEXTS, *TEXT_COLUMNS, "from_ms", "to_ms", order="key")
        if texts is not None:
            self.add(texts)
            self._from_ms.append([_EARLIEST if ms is None else ms for ms in values_of(texts, "from_ms")])
            self._until_ms.append([_LATEST if ms is None else ms + _SECOND_MS for ms in values_of(texts, "to_ms")])
        self.take_vectors(rows)

    def _take_entities(self, rows: Rows) -> set[int]:
        """Take in entities; returns the facts whose words change."""
        entities = rows.of(KG_ENTITIES, *_ENTITY)
        changed: set[int] = set()
        if entities is None:
            return changed
        for entity_id, name, alias_of, until in zip(*(values_of(entities, column) for column in _ENTITY), strict=True):
            if until is None and self._entities.get(entity_id) != (name, alias_of):
                self._entities[entity_id] = name, alias_of
                changed |= self._about.get(entity_id, set())
                for other, (_, meant) in self._entities.items() if self._about else ():
                    changed |= self._about[other] if meant == entity_id else set()
        return changed

    def _meant(self, entity_id: str) -> tuple[str, str]:
        """The name and id of an entity, those of the one that it is an alias of if it is one."""
        name, alias_of = self._entities.get(entity_id, (entity_id, None))
        root = None if alias_of is None else self._entities.get(alias_of)
        return (name, entity_id) if root is None or alias_of is None else (root[0], alias_of)

    def get(self, fact_id: str) -> KnownFact | None:
        """A fact by its id."""
        key = self._key_of.get(fact_id)
        return None if key is None else self._facts[key]

    def all(self, namespace: str | None) -> Iterator[KnownFact]:
        """The facts of a namespace, of all if None."""
        return (fact for fact in self._facts.values() if namespace in (None, fact.row.namespace))

    def search(
        self,
        text: str,
        vector: QueryVector | None,
        namespace: str | None,
        now_ms: int,
        limit: int,
        *,
        ended: bool = False,
    ) -> list[FoundFact]:
        """The facts that hold and are similar to a text in their words or in meaning, the most similar first, then by id.

        With ``ended``, also those that have ended.
        """
        hits = self.found(text, vector, namespace, now_ms, limit, ended=ended)
        return [FoundFact(self.at(hit.slot), hit.score) for hit in hits]

    def at(self, slot: int) -> KnownFact:
        """The fact in a slot."""
        return self._facts[self.key_of(slot)]

    def found(
        self,
        text: str,
        vector: QueryVector | None,
        namespace: str | None,
        now_ms: int,
        limit: int,
        *,
        ended: bool = False,
        asserted_by: str | None = None,
        least: float | None = None,
    ) -> list[TextHit]:
        """The facts as ``search`` finds them, by their slots.

        With ``asserted_by``, only those that this agent asserted. ``least`` is the cosine from which a fact that shares no
        word is a hit, in place of the floor of the model.
        """
        own = None if vector is None or vector.model != self.model else vector.vector
        terms = [*self._analyzer.terms(text), *self._analyzer.further_terms(text)]
        query = Query(text, list(dict.fromkeys(terms)), own)
        among = self._from_ms.rows <= now_ms
        if not ended:
            among &= now_ms < self._until_ms.rows
        if namespace is not None:
            among &= self.in_place(namespace)
        if asserted_by is not None:
            among &= np.array([self.at(slot).row.asserted_by == asserted_by for slot in range(len(self))], bool)
        return find(self, self.scoped(), query, FACTS_RECIPE, limit, among=among, least=least).hits

    async def conflicts(self, now_ms: int) -> list[Conflict]:
        """The conflicts among the facts that hold at a time, found in a thread: 2,000 facts take 0.1 s."""
        known = self._conflicts
        if known is None or not known.since_ms <= now_ms < known.until_ms:
            changes = self._changes
            known = await asyncio.to_thread(conflicts_at, list(self._facts.values()), now_ms)
            if self._changes == changes:
                self._conflicts = known
        return known.found


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Conflicts, and from when until when they are those of the facts that hold; the end is excluded."""

    found: list[Conflict]
    since_ms: int
    until_ms: int


def conflicts_at(facts: Sequence[KnownFact], now_ms: int) -> Conflicts:
    """The conflicts among the facts that hold at a time."""
    turns = [
        turn
        for fact in facts
        for turn in (fact.row.from_ms, None if fact.row.to_ms is None else fact.row.to_ms + _SECOND_MS)
        if turn is not None
    ]
    since = max((turn for turn in turns if turn <= now_ms), default=_EARLIEST)
    until = min((turn for turn in turns if turn > now_ms), default=_LATEST)
    return Conflicts(conflicts(fact.claim() for fact in facts if fact.holds(now_ms)), since, until)


def fact_indexes(cache: HotCache, analyzer: Analyzer) -> Indexes[FactIndex]:
    """The hot indexes of facts."""
    return Indexes(cache, "facts", partial(TextSlot[FactIndex], make=partial(FactIndex, analyzer)))
