"""``memory_chunk_vectors``: the vector of each text of memory documents, by model, from the facts of chunk embedders.

Invariant: one row per (workspace, model, text); of several facts the last counts. A dropped model has no rows, and facts
that still arrive of it count for nothing until it is added or activated again, as with vectors of entries.
"""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar, Final

from ...schemas.core.envelope import ChunkVectorDerived
from ...schemas.core.ids import name_key
from ...schemas.core.table import Tables
from ...schemas.documents.tables import CHUNK_MODELS_DROPPED, CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION, ChunkVectorRow
from ...schemas.models.events import MODEL_DECISIONS
from ...schemas.models.tables import DroppedRow, ModelState
from ..folds.payloads import model_decision
from ..projection import Batch, FoldTransaction, in_order

_OF_FACT: Final = attrgetter(*(name for name in ChunkVectorRow._fields if name != "key"))


class ChunkVectorsProjection:
    """Folds vectors of texts of documents."""

    name: ClassVar = CHUNK_VECTORS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (CHUNK_VECTORS, CHUNK_MODELS_DROPPED)
    folds: ClassVar = (ChunkVectorDerived, *MODEL_DECISIONS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's vectors; forget those of models dropped in it."""
        decisions = batch.control(*MODEL_DECISIONS)
        if not batch.chunk_vectors and not decisions:
            return
        dropped = {row.model for row in tx.whole(CHUNK_MODELS_DROPPED)}
        rows: dict[int, ChunkVectorRow] = {}
        for event in in_order(batch.chunk_vectors, decisions):
            if isinstance(event, ChunkVectorDerived):
                if event.model not in dropped:
                    row = _row(event)
                    rows[row.key] = row
                continue
            decision = model_decision(event)
            if decision is None:
                continue
            model, drops = decision.model, decision.state is ModelState.DROPPED
            if drops and model not in dropped:
                tx.add(CHUNK_MODELS_DROPPED, [DroppedRow(model)])
                tx.delete(CHUNK_VECTORS, model=model)
                rows = {key: row for key, row in rows.items() if row.model != model}
                dropped.add(model)
            elif not drops and model in dropped:
                tx.delete(CHUNK_MODELS_DROPPED, model=model)
                dropped.remove(model)
        if rows:
            tx.replace(CHUNK_VECTORS, list(rows.values()), tx.find(CHUNK_VECTORS, list(rows)))


def _row(fact: ChunkVectorDerived) -> ChunkVectorRow:
    return ChunkVectorRow(name_key((fact.workspace_id, fact.model, f"{fact.text_hash:016x}")), *_OF_FACT(fact))


PROJECTION = ChunkVectorsProjection
