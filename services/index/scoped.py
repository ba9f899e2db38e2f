"""Caches the rows of a scope and extends them as entries arrive.

Invariant: all counts are those of exactly the rows whose mask is true.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from .arrays import ABSENT, Docs, GrowableArray
from .documents import CONVERSATION, EMBEDDABLE, SPEECH, SPOKEN_BY_USER, EntryColumns
from .scope import RecallScope, scope_mask
from .vectors import VectorMatrix

MANY: Final = 1_000
"""Rows from which sorting in numpy is faster than a set."""


@dataclass(frozen=True, slots=True)
class ScopedTexts:
    """The rows of a scope among the first ``count`` documents.

    Attributes:
        count: Number of documents that this query sees.
        mask: (count,) bool; None if every row is in scope.
        size: Rows in scope.
        total_length: Words of these rows.
        compared: The rows of a matrix in scope, kept by ``rows_in`` as long as the matrix is as long.
    """

    count: int
    mask: npt.NDArray[np.bool_] | None
    size: int
    total_length: int
    compared: list[Docs] = field(default_factory=list, kw_only=True)

    def rows_in(self, matrix: VectorMatrix) -> Docs:
        """The rows of a matrix whose documents are in scope, ascending; no row of the matrix may have been removed."""
        if not self.compared or self.compared[0][0] != len(matrix):
            inside = slice(None) if self.mask is None else self.mask[matrix.doc]
            rows = np.arange(len(matrix))[inside]
            self.compared[:] = [np.array([len(matrix)]), rows]
        return self.compared[1]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return (0 if self.mask is None else self.mask.nbytes) + sum(rows.nbytes for rows in self.compared)


@dataclass(frozen=True, slots=True)
class ScopedDocuments(ScopedTexts):
    """The entries of a scope.

    Attributes:
        speakers: Codes of actors in scope whose type is user.
        turns: (count,) bool: which rows in scope are turns of a conversation.
    """

    speakers: frozenset[int]
    turns: npt.NDArray[np.bool_]
    turn_count: int


@dataclass(frozen=True, slots=True)
class WithoutVectors:
    """Entries in scope that could have a vector and have none, and those of them that are to get one."""

    entries: int
    awaiting: int


class ScopeRows:
    """One scope's mask and counts, extended on demand."""

    def __init__(self, scope: RecallScope) -> None:
        self._scope = scope
        self._mask = GrowableArray(np.bool_)
        self._turns = GrowableArray(np.bool_)
        self._could = GrowableArray(np.bool_)  # which rows in scope could have a vector,
        self._will = GrowableArray(np.bool_)  # and which are to get one
        self._turn_count = 0
        self._size = 0
        self._total_length = 0
        self._speakers: frozenset[int] = frozenset()
        self._rows: ScopedDocuments | None = None
        self._without: tuple[tuple[int, str | None], WithoutVectors] = (-1, None), WithoutVectors(0, 0)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._mask.nbytes + self._turns.nbytes + self._could.nbytes + self._will.nbytes

    def upto(self, documents: EntryColumns, count: int) -> ScopedDocuments:
        """The rows among the first ``count`` documents; ``count`` never decreases."""
        first = len(self._mask)
        if self._rows is None or count > first:
            self._extend(documents, first, count)
            whole = self._size == count
            self._rows = ScopedDocuments(
                count,
                None if whole else self._mask.rows[:count],
                self._size,
                self._total_length,
                self._speakers,
                self._turns.rows[:count],
                self._turn_count,
            )
        return self._rows

    def _extend(self, documents: EntryColumns, first: int, count: int) -> None:
        if count > first:
            mask = scope_mask(self._scope, documents, first, count)
            flags = documents.flags[first:count]
            turns = mask & ((flags & CONVERSATION) != 0)
            self._mask.append(mask)
            self._turns.append(turns)
            self._could.append(mask & ((flags & (EMBEDDABLE | SPEECH)) != 0))
            self._will.append(mask & ((flags & EMBEDDABLE) != 0))
            self._turn_count += int(np.count_nonzero(turns))
            self._size += int(np.count_nonzero(mask))
            self._total_length += int(documents.length[first:count][mask].sum(dtype=np.int64))
            heard = documents.actor[first:count][mask & ((flags & SPOKEN_BY_USER) != 0)]
            if len(heard):
                spoken = set((np.unique(heard) if count - first > MANY else heard).tolist())
                if not spoken <= self._speakers:
                    self._speakers |= spoken - {ABSENT}

    def without_vectors(self, count: int, matrix: VectorMatrix | None, seq: int) -> WithoutVectors:
        """The counts among the first ``count`` documents; remembered, as they change with a commit or the model alone."""
        key = seq, None if matrix is None else matrix.model
        if self._without[0] != key:
            lacking = np.ones(count, bool) if matrix is None else matrix.lacking(count)
            counts = (np.count_nonzero(rows.rows[:count] & lacking) for rows in (self._could, self._will))
            self._without = key, WithoutVectors(*map(int, counts))
        return self._without[1]
