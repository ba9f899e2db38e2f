"""``journal_embeddings``, a row per (entry, model) from the facts of embed reactors, and ``embedding_models``.

Invariant: of several facts about one (workspace, entry, model) the last gives the vector and the first ``indexed_at``;
a fact counts whether or not its entry is known here, for it carries all the fold needs. ``dim`` 0 is a tombstone. A
dropped model has no rows, and facts that still arrive of it count for nothing until it is added or activated again. A
reindex forgets the tombstones of its workspace: what was refused before it may be tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar, Final

from ...schemas.core.envelope import EntryRecorded, VectorDerived
from ...schemas.core.ids import name_key
from ...schemas.core.table import Tables
from ...schemas.models.events import MODEL_DECISIONS, ReindexRequested
from ...schemas.models.tables import (
    EMBEDDING_MODELS,
    EMBEDDINGS,
    VECTORS_PROJECTION,
    EmbeddingRow,
    ModelRow,
    ModelState,
)
from ..folds.payloads import model_decision, payload_of
from ..projection import Batch, FoldTransaction, in_order

_FORGET_TOMBSTONES: Final = f"""DELETE FROM {EMBEDDINGS}
    WHERE dim = 0 AND workspace_id = ? AND (CAST(? AS VARCHAR) IS NULL OR model = ?)"""


class VectorsProjection:
    """Folds vector facts."""

    name: ClassVar = VECTORS_PROJECTION
    version: ClassVar = 4
    tables: ClassVar[Tables] = (EMBEDDINGS, EMBEDDING_MODELS)
    folds: ClassVar = (VectorDerived, *MODEL_DECISIONS, ReindexRequested)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's vectors; forget those of models dropped in it."""
        decisions = batch.control(*MODEL_DECISIONS, ReindexRequested)
        if not batch.vectors and not decisions:
            return
        models = _Models(tx)
        facts: list[VectorDerived] = []
        for event in in_order(batch.vectors, decisions) if decisions else batch.vectors:
            if isinstance(event, VectorDerived):
                if not models.is_dropped(event.model):
                    facts.append(event)
            elif event.entry.entry_type == ReindexRequested.ENTRY_TYPE:
                asked = payload_of(event, ReindexRequested)
                self._upsert(facts, tx)  # a tombstone of this batch has replaced its vector by now
                facts = []
                tx.execute(_FORGET_TOMBSTONES, [event.workspace_id, asked.model, asked.model])
            elif (dropped := models.decide(event)) is not None:
                tx.delete(EMBEDDINGS, model=dropped)
                facts = [fact for fact in facts if fact.model != dropped]
        self._upsert(facts, tx)

    def _upsert(self, facts: Sequence[VectorDerived], tx: FoldTransaction) -> None:
        if not facts:
            return
        rows = [
            EmbeddingRow(name_key((fact.workspace_id, fact.entry_id, fact.model)), *_OF_FACT(fact)) for fact in facts
        ]
        former = tx.find(EMBEDDINGS, list({row.key for row in rows}))
        first = {_NAME(row): row.indexed_at for row in (*reversed(rows), *former)}
        last = {_NAME(row): row for row in rows}
        tx.replace(EMBEDDINGS, [row._replace(indexed_at=first[name]) for name, row in last.items()], former)


_NAME: Final = attrgetter(*EMBEDDINGS.key)
_OF_FACT: Final = attrgetter(
    *(name.replace("indexed_at", "published_ms") for name in EmbeddingRow._fields if name != "key")
)
"""The columns as the fact names them; its time is ``indexed_at`` if it is the first."""


class _Models:
    """What is decided about each model, as of the event folded last."""

    def __init__(self, tx: FoldTransaction) -> None:
        self._tx = tx
        self._rows = {row.model: row for row in tx.whole(EMBEDDING_MODELS)}

    def is_dropped(self, model: str) -> bool:
        """Whether facts of this model count for nothing."""
        known = self._rows.get(model)
        return known is not None and known.state == ModelState.DROPPED

    def decide(self, event: EntryRecorded) -> str | None:
        """Apply a decision about models; returns the model whose vectors it removes, or None."""
        decision = model_decision(event)
        if decision is None:
            return None
        model, state = decision.model, decision.state
        former = self._rows.get(model) or ModelRow(model, "none", ModelState.DROPPED, 0, 0)
        if state is ModelState.DROPPED:
            self._put(former._replace(state=state, dropped_seq=event.seq, seq=event.seq))
            return model
        if decision.embedder is not None and (state is ModelState.ADDED or former.state == ModelState.DROPPED):
            self._put(former._replace(embedder=decision.embedder, state=state, seq=event.seq))
        return None

    def _put(self, row: ModelRow) -> None:
        self._rows[row.model] = row
        self._tx.replace(EMBEDDING_MODELS, [row])


PROJECTION = VectorsProjection
