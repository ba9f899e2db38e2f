"""The vectors of the facts of a workspace in memory.

Invariant: they are of the active model; facts of the same words have the same vector.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...schemas.active_models import active_in, read_active_models
from ...schemas.ports import ViewReader
from ...schemas.views import CHUNK_VECTORS, FACTS
from ...schemas.views.table import PRESENT
from ..query.chunks.search import cosine_floor
from ..query.hot.vector_matrix import VectorMatrix
from ..query.query_embedding import QueryVector

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

    def like(self, vector: QueryVector | None) -> dict[str, float]:
        """Fact → cosine with a query, 0 to 1, of those that reach the floor of the model."""
        matrix = self._matrix
        if vector is None or matrix is None or matrix.model != vector.model or matrix.dim != len(vector.vector):
            return {}
        cosines = np.vecdot(matrix.vectors, vector.vector)
        rows = np.flatnonzero((cosines >= max(0.0, cosine_floor(cosines, matrix.model))) & (matrix.doc >= 0))
        return {
            self._ids[place]: min(1.0, round(cosine, _DIGITS))
            for place, cosine in zip(matrix.doc[rows].tolist(), cosines[rows].tolist(), strict=True)
        }
