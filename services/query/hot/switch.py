"""Loads another model's vectors for an index while queries and commits continue.

Queries use the former model's vectors until all of the new model's are loaded. The former matrix is kept, so switching
back needs no load. Invariant: a loaded matrix holds every fact committed before it is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ....schemas.ports import ViewReader
from .index import HotIndex
from .rows import Commit
from .vector_matrix import VectorMatrix
from .vectors import dropped_by, fill, read_matrix

InThread = Callable[..., Awaitable[VectorMatrix]]


class MatrixReading:
    """Loads a model's vectors for an index that changes meanwhile; used on the event loop."""

    def __init__(self, index: HotIndex, model: str) -> None:
        self.index = index
        self.model = model
        self._commits: list[Commit] = []

    def follow(self, commit: Commit) -> None:
        """Keep commits that arrive while the matrix is read."""
        self._commits.append(commit)

    async def read(self, views: ViewReader, in_thread: InThread) -> VectorMatrix:
        """Load the matrix and apply queued commits; loads again if the model was dropped meanwhile."""
        while True:
            self._commits = []
            seqs = self.index.documents.seq  # documents that come meanwhile bring their facts with them, or after them
            matrix = await in_thread(read_matrix, views, self.index.workspace_id, self.model, seqs)
            if not any(self.model in dropped_by(commit) for commit in self._commits):
                for commit in self._commits:
                    fill(matrix, commit.rows(self.index.workspace_id), self.index.documents.seq)
                return matrix
