"""The vectors of one model in one workspace, as a matrix.

Invariant: each document has at most one row. A row is L2-normalised, or zeros if the vector has another dimension, norm
0 or a NaN (cosine 0, contract §4).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from .growable import GrowableArray
from .token_store import TokenStore

Vectors = npt.NDArray[np.float32]
FLOAT32_LE: Final = np.dtype("<f4")
NO_ROW: Final = -1
_SMALLEST_NORM: Final = 1e-12


def normalised(vectors: Vectors) -> Vectors:
    """Rows divided by their L2 norms; zeros if the norm is 0 or not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    usable = np.isfinite(norms) & (norms > _SMALLEST_NORM)
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=usable)
    rows: Vectors = np.where(usable[:, None], vectors, np.float32(0.0)) * scale[:, None].astype(np.float32)
    return rows


def query_vector(data: bytes) -> Vectors:
    """A query's vector, (d,) float32, normalised."""
    vector = np.frombuffer(data, FLOAT32_LE)
    exact = vector.astype(np.float64)
    norm = math.sqrt(exact.dot(exact))
    if not (_SMALLEST_NORM < norm < math.inf):
        return np.zeros_like(vector)
    scaled: Vectors = vector * np.float32(1.0 / norm)
    return scaled


class VectorMatrix:
    """Vectors by row, with the document of each row; ``tokens`` holds the token bits of the same model.

    Args:
        dim: Dimensions; None to take them from the first vector.
    """

    def __init__(self, model: str, dim: int | None = None) -> None:
        self.model = model
        self._dim = dim
        self._vectors: GrowableArray | None = GrowableArray(np.float32, dim) if dim else None
        self._doc = GrowableArray(np.int32)
        self._fact_seq = GrowableArray(np.int64)
        self._row_of = GrowableArray(np.int32)
        self.tokens = TokenStore()

    def __len__(self) -> int:
        return len(self._doc)

    @property
    def dim(self) -> int | None:
        """Dimensions; None without a vector."""
        return self._dim

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        vectors = self._vectors.nbytes if self._vectors is not None else 0
        columns = self._doc.nbytes + self._fact_seq.nbytes
        return vectors + columns + self._row_of.nbytes + self.tokens.nbytes

    @property
    def vectors(self) -> Vectors:
        """(m, d) float32, rows L2-normalised or zeros."""
        return self._vectors.rows if self._vectors is not None else np.empty((0, 0), np.float32)

    @property
    def doc(self) -> npt.NDArray[np.int32]:
        """(m,) int32 document of each row; -1 if the vector was removed."""
        return self._doc.rows

    @property
    def fact_seq(self) -> npt.NDArray[np.int64]:
        """(m,) int64 sequence of the fact of each row."""
        return self._fact_seq.rows

    def append(self, docs: npt.NDArray[np.int32], vectors: Vectors, fact_seq: npt.NDArray[np.int64]) -> None:
        """Append rows of documents without one; ``vectors`` (m, d) of any norm, and the sequences of their facts."""
        if not len(docs):
            return
        if self._vectors is None:
            self._dim = vectors.shape[1]
            self._vectors = GrowableArray(np.float32, self._dim)
        first = len(self._doc)
        self._vectors.append(normalised(vectors))
        self._fact_seq.append(fact_seq)
        self._doc.append(docs)
        self._row_of.cover(int(docs.max()) + 1, NO_ROW)
        self._row_of.rows[docs] = np.arange(first, first + len(docs), dtype=np.int32)

    def put(self, doc: int, data: bytes, fact_seq: int) -> None:
        """Set one document's vector (little-endian float32) by the fact at ``fact_seq``; empty ``data`` removes it.

        A vector of another dimension is stored as zeros.
        """
        row = int(self._row_of.rows[doc]) if doc < len(self._row_of) else NO_ROW
        if not data:
            if row != NO_ROW:
                self._row_of.rows[doc] = NO_ROW
                self._doc.rows[row] = NO_ROW
            return
        vector = np.frombuffer(data, FLOAT32_LE)[None, :]
        if self._dim is not None and vector.shape[1] != self._dim:
            vector = np.zeros((1, self._dim), np.float32)
        if row == NO_ROW or self._vectors is None:
            self.append(np.array([doc], np.int32), vector, np.array([fact_seq], np.int64))
        else:
            self._vectors.rows[row] = normalised(vector)[0]
            self._fact_seq.rows[row] = fact_seq

    def put_all(
        self,
        docs: npt.NDArray[np.int32],
        values: Vectors,
        counts: npt.NDArray[np.int64],
        fact_seq: npt.NDArray[np.int64],
    ) -> None:
        """``put`` of several in order; one append where, as nearly always, they are of documents that have none yet.

        Args:
            docs: (m,) documents.
            values: The vectors one after the other.
            counts: (m,) the length of each.
            fact_seq: (m,) the facts that brought them.
        """
        if len(docs) == 1:
            self.put(int(docs[0]), values.tobytes(), int(fact_seq[0]))
            return
        dim = self._dim or int(counts.max(initial=0))
        fresh = self.rows_of(docs) == NO_ROW
        distinct = len(np.unique(docs)) == len(docs)
        if distinct:  # without removals of vectors that are not there
            kept = (counts > 0) | ~fresh
            docs, counts, fact_seq, fresh = docs[kept], counts[kept], fact_seq[kept], fresh[kept]
        if distinct and dim and bool(fresh.all()) and bool((counts == dim).all()):
            self.append(docs, values.reshape(-1, dim), fact_seq)
            return
        ends = np.cumsum(counts)
        for at, doc in enumerate(docs.tolist()):
            self.put(doc, values[ends[at] - counts[at] : ends[at]].tobytes(), int(fact_seq[at]))

    def rows_of(self, docs: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """(m,) int32 rows of documents, -1 without a vector."""
        if not len(self._row_of):
            return np.full(len(docs), NO_ROW, np.int32)
        rows: npt.NDArray[np.int32] = self._row_of.rows.take(docs, mode="clip")
        rows[docs >= len(self._row_of)] = NO_ROW
        return rows

    def lacking(self, count: int) -> npt.NDArray[np.bool_]:
        """(count,) bool: which of the first documents have no vector."""
        lacking = np.ones(count, bool)
        known = self._row_of.rows[:count]
        np.equal(known, NO_ROW, out=lacking[: len(known)])
        return lacking
