"""Another model's vectors for an index, read while queries and commits go on.

Why: an activation must neither stop recall nor load a workspace anew. The matrix of the new model is read in a thread;
until it is there, queries meet the former one whole, and from one moment to the next they meet the new one whole. What was
used before stays at hand, so switching back takes no read at all.

Invariant: a matrix that was read holds every fact committed before the moment it is handed out.
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
    """One reading of a model's vectors for an index that goes on changing; used on the event loop.

    Args:
        index: The index.
        model: Whose vectors.
    """

    def __init__(self, index: HotIndex, model: str) -> None:
        self.index = index
        self.model = model
        self._commits: list[Commit] = []

    def follow(self, commit: Commit) -> None:
        """Keep what is committed while the matrix is read."""
        self._commits.append(commit)

    async def read(self, views: ViewReader, in_thread: InThread) -> VectorMatrix:
        """The matrix as of now, once it is read; read again if the model was dropped meanwhile."""
        while True:
            self._commits = []
            seqs = self.index.documents.seq  # documents that come meanwhile bring their facts with them, or after them
            matrix = await in_thread(read_matrix, views, self.index.workspace_id, self.model, seqs)
            if not any(self.model in dropped_by(commit) for commit in self._commits):
                for commit in self._commits:
                    fill(matrix, commit.rows(self.index.workspace_id), self.index.documents.seq)
                return matrix
