"""Loads another model's vectors for an index while queries and commits continue.

Queries use the former model's vectors until all of the new model's are loaded. The former matrix is kept, so switching
back needs no load. Invariant: a loaded matrix holds every fact committed before it is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from ....schemas.ports import ViewReader
from .index import HotIndex
from .vector_matrix import VectorMatrix
from .vectors import ModelFact, put_facts, read_matrix

InThread = Callable[..., Awaitable[VectorMatrix]]


class MatrixReading:
    """Loads a model's vectors for an index that changes meanwhile; used on the event loop."""

    def __init__(self, index: HotIndex, model: str) -> None:
        self.index = index
        self.model = model
        self._facts: list[ModelFact] = []
        self._dropped = False

    def follow(self, facts: Sequence[ModelFact], dropped: Collection[str]) -> None:
        """Queue a commit while the matrix is loaded."""
        self._facts += [fact for fact in facts if fact.model == self.model]
        self._dropped = self._dropped or self.model in dropped

    async def read(self, views: ViewReader, in_thread: InThread) -> VectorMatrix:
        """Load the matrix and apply queued commits; loads again if the model was dropped meanwhile."""
        while True:
            self._facts, self._dropped = [], False
            seqs = self.index.documents.seq  # facts of documents that arrive meanwhile are in the queued commits
            matrix = await in_thread(read_matrix, views, self.index.workspace_id, self.model, seqs)
            if not self._dropped:
                put_facts(matrix, self.index.documents, self._facts)
                return matrix
