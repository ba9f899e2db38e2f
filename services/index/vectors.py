"""The vector matrices of a hot index: the active model's and some recently used ones.

Why: switching models must not cost a load of the whole workspace. A matrix is read while queries continue with the former
one; a query uses one matrix, which names its model.

Invariant: every matrix held is what a fresh read would give: vector facts reach all of them, not the active one alone.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import ViewReader
from ...schemas.models.tables import EMBEDDINGS, TOKEN_BITS
from .arrays import ABSENT, GrowableArray, Ragged, places_of
from .arrow import Found, array, runs, sequences
from .rows import Commit, Rows, StoredRows

# The token bits of one model's entries in context, one bit per dimension.


WORD_BYTES: Final = 8
Words = npt.NDArray[np.uint64]


def words_of(bits: bytes, dim: int) -> Words:
    """(tokens, dim / 64) uint64 words of packed bits."""
    return np.frombuffer(bits, np.uint64).reshape(-1, dim // (8 * WORD_BYTES))


class TokenStore:
    """Token bits by document; the first fact sets quantiser and width."""

    def __init__(self) -> None:
        self.quantiser = 0
        self.dim = 0
        self.runs = Ragged(np.uint64, 1)
        self._first_passage = GrowableArray(np.uint16)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.runs.nbytes + self._first_passage.nbytes

    @property
    def first_passage(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16: number of tokens in the first passage of each document."""
        return self._first_passage.rows

    def extend(
        self,
        docs: npt.NDArray[np.integer],
        quantiser: int,
        dim: int,
        data: bytes,
        counts: npt.NDArray[np.int64],
        first_passage: npt.NDArray[np.integer],
    ) -> None:
        """Set the tokens of many documents of one quantiser and width."""
        if len(docs) and self._takes(quantiser, dim):
            self.runs.append(docs, words_of(data, dim), counts)
            self._first_passage.cover(len(self.runs), 0)
            self._first_passage.rows[docs] = first_passage

    def _takes(self, quantiser: int, dim: int) -> bool:
        if quantiser < self.quantiser or (quantiser == self.quantiser and dim != self.dim):
            return False
        if quantiser > self.quantiser:
            self.quantiser, self.dim = quantiser, dim
            self.runs = Ragged(np.uint64, dim // (8 * WORD_BYTES))
            self._first_passage = GrowableArray(np.uint16)
        return True


# The vectors of one model in one workspace, as a matrix.


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


SKETCHED_FROM: Final = 50_000
"""Vectors in scope from which the dense arm looks through one bit a dimension first; below, every cosine is computed. 50,000
vectors of 384 dimensions are 77 MB, which a core reads in about 5 ms."""
_CODE_BITS: Final = 64


class Sketch:
    """One bit for each dimension of a vector: on which side of the mean vector it lies (Charikar, STOC 2002).

    The share of differing bits estimates the angle of two vectors, from which follows an estimate of their cosine. The mean
    is that of the vectors there were when the sketch was made; vectors that come later keep to it. So a sketch that followed
    commits and one made after a load may differ in which of nearly equal vectors they find likely.

    Args:
        vectors: (m, d) float32, L2-normalised; d is a multiple of 64.
    """

    def __init__(self, vectors: Vectors) -> None:
        self._centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._words = [GrowableArray(np.uint64) for _ in range(vectors.shape[1] // _CODE_BITS)]
        shared = float(self._centre @ self._centre)
        angles = np.arange(vectors.shape[1] + 1) * (np.pi / vectors.shape[1])
        self._cosine_of = (shared + (1.0 - shared) * np.cos(angles)).astype(np.float32)
        self.extend(vectors)

    def __len__(self) -> int:
        return len(self._words[0])

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(word.nbytes for word in self._words)

    def extend(self, vectors: Vectors) -> None:
        """Append the bits of more vectors."""
        for first in range(0, len(vectors), SKETCHED_FROM):  # so that few are copied at once
            for word, values in zip(self._words, self._codes(vectors[first : first + SKETCHED_FROM]).T, strict=True):
                word.append(values)

    def replace(self, row: int, vector: Vectors) -> None:
        """Set the bits of one vector, (d,)."""
        for word, value in zip(self._words, self._codes(vector[None, :])[0], strict=True):
            word.rows[row] = value

    def cosines(self, query: Vectors) -> Vectors:
        """(m,) float32: the estimated cosine of every vector with the query, (d,)."""
        distance = np.zeros(len(self), np.uint16)
        for word, value in zip(self._words, self._codes(query[None, :])[0], strict=True):
            distance += np.bitwise_count(word.rows ^ value)
        estimated: Vectors = self._cosine_of.take(distance)
        return estimated

    def _codes(self, vectors: Vectors) -> npt.NDArray[np.uint64]:
        return np.packbits(vectors > self._centre, axis=1).view(np.uint64)


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
        self._sketch: Sketch | None = None
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
        sketch = 0 if self._sketch is None else self._sketch.nbytes
        return vectors + columns + self._row_of.nbytes + self.tokens.nbytes + sketch

    @property
    def sketch(self) -> Sketch | None:
        """The sketch of all rows, made at the first use; None if they are few or their dimension is no multiple of 64."""
        if len(self) < SKETCHED_FROM or (self._dim or 1) % _CODE_BITS:
            return None
        if self._sketch is None:
            self._sketch = Sketch(self.vectors)
        elif len(self._sketch) < len(self):
            self._sketch.extend(self.vectors[len(self._sketch) :])
        return self._sketch

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
            if self._sketch is not None and row < len(self._sketch):
                self._sketch.replace(row, self._vectors.rows[row])
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
