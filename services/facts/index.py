"""The facts of a workspace in memory: found by their words and their vectors, with the conflicts among them.

similarity = max(BM25 score / Σ idf·(k1 + 1) of the query's terms, cosine if it reaches the floor of the model), 0 to 1.

Invariant: an index is refreshed after a commit that changed facts, and reads only what changed since the last time. Ended
facts are in it; whether a fact holds depends on the time of the request.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final

import numpy as np

from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.facts.rules import Claim, Conflict, conflicts
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES, FactRow
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.text.analyzer import Analyzer
from ..documents.chunk_search import cosine_floor
from ..index.active_models import decides_models
from ..index.query_embedding import QueryVector
from ..index.vectors import NO_ROW, VectorMatrix, Vectors
from ..recall.arms import K1, B, idf_of

# The vectors of the facts of a workspace in memory.


_DIGITS: Final = 6
_MADE: Final = f"""SELECT text_hash, vector, seq FROM {CHUNK_VECTORS}
    WHERE workspace_id = $ws AND model = $model AND (seq > $seq OR text_hash IN (SELECT unnest($added::UBIGINT[])))
    AND text_hash IN (SELECT text_hash FROM {FACTS} WHERE workspace_id = $ws AND {PRESENT}) ORDER BY seq"""


class FactVectors:
    """The vectors of one workspace; a fact is known by its place, the number of facts that were added before it."""

    def __init__(self) -> None:
        self._places: dict[int, list[int]] = {}  # text_hash → its facts
        self._ids: list[str] = []
        self._added: list[int] = []
        self._matrix: VectorMatrix | None = None
        self._seq = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors."""
        return 0 if self._matrix is None else self._matrix.nbytes

    @property
    def model(self) -> str | None:
        """The model of the vectors; None if there are none."""
        return None if self._matrix is None else self._matrix.model

    def add(self, fact_id: str, text_hash: int) -> None:
        """Add a fact, whose vector ``take`` takes in."""
        self._places.setdefault(text_hash, []).append(len(self._ids))
        self._ids.append(fact_id)
        self._added.append(text_hash)

    def take(self, views: ViewReader, workspace_id: str) -> None:
        """Take in the vectors that were made since the last time, and those of added facts; blocking."""
        model = active_in(read_active_models(views), workspace_id)
        if self._matrix is None or self._matrix.model != model:
            self._matrix, self._seq = None if model is None else VectorMatrix(model), 0
        if self._matrix is not None:
            added = self._added if self._seq else []  # else all are read
            params = {"ws": workspace_id, "model": model, "seq": self._seq, "added": added}
            for text_hash, vector, seq in views.rows(_MADE, params):
                self._seq = max(self._seq, seq)
                for place in self._places.get(text_hash, ()):
                    self._matrix.put(place, vector, seq)
        self._added = []

    def of(self, text_hash: int) -> Vectors | None:
        """(d,) float32, L2-normalised: the vector of a text; None if there is none."""
        place = self._places.get(text_hash, [NO_ROW])[0]
        if self._matrix is None or place == NO_ROW:
            return None
        row = int(self._matrix.rows_of(np.array([place]))[0])
        return None if row == NO_ROW else self._matrix.vectors[row]

    def like(self, vector: QueryVector | None, least: float | None = None) -> dict[str, float]:
        """Fact → cosine with a query, 0 to 1, of those that reach ``least``, or the floor of the model."""
        matrix = self._matrix
        if vector is None or matrix is None or matrix.model != vector.model or matrix.dim != len(vector.vector):
            return {}
        cosines = np.vecdot(matrix.vectors, vector.vector)
        floor = cosine_floor(cosines, matrix.model) if least is None else least
        rows = np.flatnonzero((cosines >= max(0.0, floor)) & (matrix.doc >= 0))
        return {
            self._ids[place]: min(1.0, round(cosine, _DIGITS))
            for place, cosine in zip(matrix.doc[rows].tolist(), cosines[rows].tolist(), strict=True)
        }


FACTS_SHARE: Final = 4
"""Fraction (1/n) of the memory budget of hot indexes that is for facts."""
FACT_BYTES: Final = 3_000
"""Memory of a fact without its vector: 10,000 take about 30 MB."""
_SECOND_MS: Final = 1_000
"""An end names a whole second."""
_RENAMED: Final = f"SELECT 1 FROM {KG_ENTITIES} WHERE workspace_id = ? AND until_seq > ? LIMIT 1"
_CHANGED: Final = f"""WITH known AS (SELECT * FROM {KG_ENTITIES} WHERE workspace_id = $ws AND {PRESENT}),
    named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS name
        FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of)
    SELECT s.name, s.root, o.name, o.root, {", ".join(f"f.{column.name}" for column in FACTS.columns)}
    FROM (FROM {FACTS} WHERE workspace_id = $ws AND {PRESENT} AND since_seq > $seq) f
    JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id ORDER BY f.fact_id"""
_FOLLOWED: Final = frozenset(table.name for table in (FACTS, KG_ENTITIES, CHUNK_VECTORS))


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A fact with the names of its ends.

    Attributes:
        row: Its row.
        subject: Name of the subject.
        subject_root: Id of the subject, that of the entity if it was named by an alias.
        object: Name of the object.
        object_root: Id of the object, likewise.
        counts: Its terms.
        length: How many they are.
    """

    row: FactRow
    subject: str
    subject_root: str
    object: str
    object_root: str
    counts: Counter[int]
    length: int

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

    def began(self, now_ms: int) -> bool:
        """Whether it holds at a time or has ended before it."""
        return self.row.from_ms is None or self.row.from_ms <= now_ms

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


class FactIndex:
    """The facts of one workspace."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._facts: dict[str, KnownFact] = {}
        self._holding: dict[int, set[str]] = {}
        self._total = 0
        self._conflicts: list[Conflict] | None = None
        self._conflicts_until = (0, 0)
        self._vectors = FactVectors()
        self.seq = 0
        self.version = -1

    def refresh(self, views: ViewReader, workspace_id: str) -> None:
        """Take in the changes since the last refresh; blocking."""
        seq = views.view_seq(FACTS_PROJECTION)
        if self._facts and views.rows(_RENAMED, [workspace_id, self.seq]):
            self._facts.clear()
            self._holding.clear()
            self._total = self.seq = 0
            self._conflicts = None
            self._vectors = FactVectors()
        for subject, subject_root, object_, object_root, *rest in views.rows(
            _CHANGED, {"ws": workspace_id, "seq": self.seq}
        ):
            row = FactRow(*rest)
            text = f"{subject} {row.predicate} {object_} {row.text or ''}"
            counts = Counter([*self._analyzer.terms(text), *self._analyzer.further_terms(text)])
            self._put(KnownFact(row, subject, subject_root, object_, object_root, counts, counts.total()))
            self._conflicts = None
        self.seq = seq
        self._vectors.take(views, workspace_id)

    @property
    def nbytes(self) -> int:
        """Estimated bytes in memory."""
        return FACT_BYTES * (1 + len(self._facts)) + self._vectors.nbytes

    @property
    def model(self) -> str | None:
        """The model of the vectors; None if there are none."""
        return self._vectors.model

    def vector_of(self, fact: KnownFact) -> Vectors | None:
        """(d,) float32, L2-normalised, of ``model``; None if the fact has no vector."""
        return self._vectors.of(fact.row.text_hash)

    def frequency(self, term: int) -> int:
        """Number of facts that hold a term."""
        return len(self._holding.get(term, ()))

    def __len__(self) -> int:
        return len(self._facts)

    def get(self, fact_id: str) -> KnownFact | None:
        """A fact by its id."""
        return self._facts.get(fact_id)

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
        asserted_by: str | None = None,
        least: float | None = None,
    ) -> list[FoundFact]:
        """The facts that hold and are similar to a text in their words or in meaning, the most similar first, then by id.

        With ``ended``, also those that have ended; with ``asserted_by``, only those that this agent asserted.
        ``least`` is the cosine from which a fact that shares no word is a hit, in place of the floor of the model.
        """
        similarities = self._vectors.like(vector, least)
        for fact_id, share in self._by_words(text).items():
            similarities[fact_id] = max(share, similarities.get(fact_id, 0.0))
        holding = [
            FoundFact(fact, similarity)
            for fact_id, similarity in similarities.items()
            if namespace in (None, (fact := self._facts[fact_id]).row.namespace)
            and (fact.began(now_ms) if ended else fact.holds(now_ms))
            and asserted_by in (None, fact.row.asserted_by)
        ]
        return sorted(holding, key=lambda hit: (-hit.similarity, hit.fact.row.fact_id))[:limit]

    def _by_words(self, text: str) -> dict[str, float]:
        """Fact → its BM25 score as a share of the best possible one."""
        terms = list(dict.fromkeys([*self._analyzer.terms(text), *self._analyzer.further_terms(text)]))
        if not self._facts or not terms:
            return {}
        average = max(1.0, self._total / len(self._facts))
        scores: dict[str, float] = {}
        best = 0.0
        for term in terms:
            holding = self._holding.get(term, ())
            gain = idf_of(len(holding), len(self._facts)) * (K1 + 1.0)
            best += gain
            for fact_id in holding:
                fact = self._facts[fact_id]
                tf = fact.counts[term]
                share = gain * tf / (tf + K1 * (1.0 - B + B * fact.length / average))
                scores[fact_id] = scores.get(fact_id, 0.0) + share
        return {fact_id: score / best for fact_id, score in scores.items()}

    def conflicts(self, now_ms: int) -> list[Conflict]:
        """The conflicts among the facts that hold at a time."""
        since, until = self._conflicts_until
        if self._conflicts is None or not since <= now_ms < until:
            self._conflicts = conflicts(fact.claim() for fact in self._facts.values() if fact.holds(now_ms))
            self._conflicts_until = self._unchanged(now_ms)
        return self._conflicts

    def _unchanged(self, now_ms: int) -> tuple[int, int]:
        """From when until when, around a time, the same facts hold; the end is excluded."""
        turns = [
            turn
            for fact in self._facts.values()
            for turn in (fact.row.from_ms, None if fact.row.to_ms is None else fact.row.to_ms + _SECOND_MS)
            if turn is not None
        ]
        since = max((turn for turn in turns if turn <= now_ms), default=-(2**62))
        return since, min((turn for turn in turns if turn > now_ms), default=2**62)

    def _put(self, fact: KnownFact) -> None:
        fact_id = fact.row.fact_id
        if fact_id not in self._facts:
            self._vectors.add(fact_id, fact.row.text_hash)
        if (before := self._facts.get(fact_id)) is not None:
            self._total -= before.length
        self._facts[fact_id] = fact  # a fact keeps its words, so its postings stay
        self._total += fact.length
        for term in fact.counts:
            self._holding.setdefault(term, set()).add(fact_id)


class FactIndexes:
    """The indexes of the workspaces in use; blocking, for worker threads.

    Args:
        views: Where facts are read.
        analyzer: Turns texts into terms.
        budget_bytes: Memory of all hot indexes of the node. The index in use is kept even if it alone is larger.
    """

    def __init__(self, views: ViewReader, analyzer: Analyzer, *, budget_bytes: int) -> None:
        self._views = views
        self._analyzer = analyzer
        self._budget = budget_bytes // FACTS_SHARE
        self._indexes: OrderedDict[str, FactIndex] = OrderedDict()
        self._generation = -1
        self._version = 0
        self.lock = Lock()
        self.close = views.subscribe(self._follow)

    def _follow(self, batch: CommittedBatch) -> None:
        if not _FOLLOWED.isdisjoint(batch.changes) or any(map(decides_models, batch.entries)):
            self._version += 1

    def fresh(self, workspace_id: str) -> FactIndex:
        """The index, as new as the views; hold ``lock`` while it is used."""
        if self._generation != self._views.generation:
            self._generation = self._views.generation
            self._indexes.clear()
        index = self._indexes.setdefault(workspace_id, FactIndex(self._analyzer))
        self._indexes.move_to_end(workspace_id)
        if index.version != (version := self._version):
            index.refresh(self._views, workspace_id)
            index.version = version
            while len(self._indexes) > 1 and sum(index.nbytes for index in self._indexes.values()) > self._budget:
                self._indexes.popitem(last=False)
        return index
