"""The vector matrices of a hot index: the active model's, and lately used others that a switch finds at hand.

Why: switching models must not cost a load of the whole workspace. One matrix is read beside the queries that go on with
the former one; whichever a query meets is of one model, and says of which.

Invariant: every matrix held is what a fresh read would give: vector facts reach all of them, not the active one alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....schemas.events.envelope import TokenBitsDerived, VectorDerived
from ....schemas.ports import ViewReader
from ....schemas.views import EMBEDDINGS, TOKEN_BITS
from .documents import ABSENT, Documents, places_of
from .vector_matrix import FLOAT32_LE, VectorMatrix, Vectors

_VECTORS: Final = f"""SELECT entry_seq::BIGINT AS entry_seq, dim, vector, seq::BIGINT AS seq
    FROM {EMBEDDINGS}
    WHERE workspace_id = ? AND model = ? AND dim > 0 ORDER BY seq"""


_TOKENS: Final = f"""SELECT entry_seq::BIGINT AS entry_seq, quantiser, dim, bits, first_passage FROM {TOKEN_BITS}
    WHERE workspace_id = ? AND model = ? ORDER BY seq"""

ModelFact = VectorDerived | TokenBitsDerived
"""What is derived from an entry by a model."""


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
    if len(seqs):
        _fill(matrix, seqs, views.columns(_VECTORS, [workspace_id, model]))
        _fill_tokens(matrix, seqs, views.columns(_TOKENS, [workspace_id, model]))
    return matrix


def _fill(matrix: VectorMatrix, seqs: npt.NDArray[np.int64], table: pa.Table) -> None:
    docs = places_of(seqs, _array(table, "entry_seq"))
    dims = _array(table, "dim")
    have = docs != ABSENT
    if not have.any():
        return
    dim = int(dims[have][0])
    fact_seq = _array(table, "seq")
    blob = _one(table, "vector").cast(pa.large_binary())
    ends = np.frombuffer(blob.buffers()[1], np.int64)[blob.offset : blob.offset + len(blob) + 1]
    data = blob.buffers()[2]
    if bool((dims == dim).all()):
        every: Vectors = np.frombuffer(data, FLOAT32_LE)[ends[0] // 4 : ends[-1] // 4].reshape(-1, dim)
        matrix.append(docs[have], every if have.all() else every[have], fact_seq[have])
        return
    for row in np.flatnonzero(have).tolist():  # a model that changed its width: such rows count as zeros
        body = bytes(data[int(ends[row]) : int(ends[row + 1])])
        matrix.put(int(docs[row]), body, int(fact_seq[row]))


def _fill_tokens(matrix: VectorMatrix, seqs: npt.NDArray[np.int64], table: pa.Table) -> None:
    docs = places_of(seqs, _array(table, "entry_seq"))
    quantisers, dims, first = (_array(table, name) for name in ("quantiser", "dim", "first_passage"))
    blob = _one(table, "bits").cast(pa.large_binary())
    if not len(blob):
        return
    ends = np.frombuffer(blob.buffers()[1], np.int64)[blob.offset : blob.offset + len(blob) + 1]
    data = np.frombuffer(blob.buffers()[2], np.uint8)
    newest = quantisers == quantisers.max()
    kept = newest & (docs != ABSENT) & (dims == dims[newest][0])
    lengths = np.diff(ends)
    chosen = np.repeat(kept, lengths)
    dim = int(dims[newest][0])
    matrix.tokens.extend(
        docs[kept],
        int(quantisers.max()),
        dim,
        data[ends[0] : ends[-1]][chosen].tobytes(),
        lengths[kept] // (dim // 8),
        first[kept],
    )


def put_facts(matrix: VectorMatrix, documents: Documents, facts: Iterable[ModelFact]) -> None:
    """Put the facts of the matrix's model into it, in order; those of entries that are no documents are passed over."""
    own = [fact for fact in facts if fact.model == matrix.model]
    docs = documents.local(np.array([fact.entry_seq for fact in own], np.int64))
    vectors = []
    for doc, fact in zip(docs.tolist(), own, strict=True):
        if doc == ABSENT:
            continue
        if isinstance(fact, TokenBitsDerived):
            matrix.tokens.put(doc, fact.quantiser, fact.dim, fact.bits, fact.first_passage)
        else:
            vectors.append((doc, fact.vector, fact.seq))
    matrix.put_all(vectors)


def _one(table: pa.Table, name: str) -> Any:
    column = table.column(name).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _array(table: pa.Table, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = _one(table, name).to_numpy(zero_copy_only=False)
    return values
