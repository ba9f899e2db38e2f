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
from ..folds.payloads import fold_by_model
from ..projection import Batch, FoldTransaction

_OF_FACT: Final = attrgetter(*(name for name in ChunkVectorRow._fields if name != "key"))


class ChunkVectorsProjection:
    """Folds vectors of texts of documents."""

    name: ClassVar = CHUNK_VECTORS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (CHUNK_VECTORS, CHUNK_MODELS_DROPPED)
    folds: ClassVar = (ChunkVectorDerived, *MODEL_DECISIONS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's vectors; forget those of models dropped in it."""
        fold_by_model(batch.chunk_vectors, batch, tx, CHUNK_VECTORS, CHUNK_MODELS_DROPPED, _row)


def _row(fact: ChunkVectorDerived) -> ChunkVectorRow:
    return ChunkVectorRow(name_key((fact.workspace_id, fact.model, f"{fact.text_hash:016x}")), *_OF_FACT(fact))


PROJECTION = ChunkVectorsProjection
