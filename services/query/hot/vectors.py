"""The vector matrices of a hot index: the active model's and some recently used ones.

Why: switching models must not cost a load of the whole workspace. A matrix is read while queries continue with the former
one; a query uses one matrix, which names its model.

Invariant: every matrix held is what a fresh read would give: vector facts reach all of them, not the active one alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....schemas.ports import ViewReader
from ....schemas.views import EMBEDDINGS, TOKEN_BITS
from .arrow import Found, array, runs, sequences
from .rows import Commit, Rows, StoredRows
from .vector_matrix import FLOAT32_LE, VectorMatrix
from .vocabulary import ABSENT, places_of


def read_matrix(views: ViewReader, workspace_id: str, model: str, seqs: npt.NDArray[np.int64]) -> VectorMatrix:
    """The vectors of one model over some documents; blocking, for a worker thread.

    Args:
        views: The views; read as they are, so that facts committed meanwhile may be in it: putting one twice changes
            nothing.
        workspace_id: The workspace.
        model: The model.
        seqs: (n,) int64 stream sequences of the documents, ascending.
    """
    matrix = VectorMatrix(model)
    fill(matrix, StoredRows(views, workspace_id), seqs)
    return matrix


def dropped_by(commit: Commit) -> list[str]:
    """The models whose vectors a commit removed."""
    return [str(removed["model"]) for removed in commit.removed(EMBEDDINGS)]


def fill(matrix: VectorMatrix, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
    """Put the vectors and tokens of the matrix's model into it; those of entries that are not documents are skipped."""
    if not len(seqs):
        return
    vectors = rows.of(EMBEDDINGS, "entry_seq", "vector", "seq", order="seq", model=matrix.model)
    if vectors is not None:
        _fill(matrix, vectors, seqs)
    columns = ("entry_seq", "quantiser", "dim", "bits", "first_passage")
    tokens = rows.of(TOKEN_BITS, *columns, order="seq", model=matrix.model)
    if tokens is not None:
        _fill_tokens(matrix, tokens, seqs)


def _fill(matrix: VectorMatrix, hit: Found, seqs: npt.NDArray[np.int64]) -> None:
    docs = places_of(seqs, sequences(hit, "entry_seq"))
    values, counts = runs(hit, "vector", FLOAT32_LE)
    here = docs != ABSENT
    if not here.all():
        values = values[np.repeat(here, counts)]
    matrix.put_all(docs[here], values, counts[here], sequences(hit, "seq")[here])


def _fill_tokens(matrix: VectorMatrix, hit: Found, seqs: npt.NDArray[np.int64]) -> None:
    docs = places_of(seqs, sequences(hit, "entry_seq"))
    quantisers, dims, first = (array(hit, name) for name in ("quantiser", "dim", "first_passage"))
    bits, lengths = runs(hit, "bits", "u1")
    newest = quantisers == quantisers.max()
    dim = int(dims[newest][0])
    kept = newest & (docs != ABSENT) & (dims == dim)
    own = bits[np.repeat(kept, lengths)].tobytes()
    matrix.tokens.extend(docs[kept], int(quantisers.max()), dim, own, lengths[kept] // (dim // 8), first[kept])
