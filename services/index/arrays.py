"""Arrays that grow at the end, used for every column of a hot index.

Invariant: an append never changes a view of ``rows`` that was returned earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_FIRST_CAPACITY: Final = 256
"""Rows of the first allocation."""
_DOUBLE_UNTIL: Final = 1 << 16
"""Rows up to which capacity doubles; above, it grows by an eighth, so that less than 13 % is unused."""
_GROWTH_SHIFT: Final = 3


class GrowableArray:
    """A numpy array with amortised appends along the first axis.

    Args:
        dtype: Element type.
        width: Columns of a two-dimensional array; None for one dimension.
    """

    __slots__ = ("_buffer", "_size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._buffer: npt.NDArray[Any] = np.empty((0,) if width is None else (0, width), dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> npt.NDArray[Any]:
        """A view of the rows appended so far; later appends do not change it."""
        return self._buffer[: self._size]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return int(self._buffer.nbytes)

    def append(self, values: npt.ArrayLike) -> None:
        """Append rows; the first append allocates exactly their size."""
        block = np.asarray(values, dtype=self._buffer.dtype)
        end = self._size + len(block)
        if end > len(self._buffer):
            self._reserve(end)
        self._buffer[self._size : end] = block
        self._size = end

    def cover(self, size: int, value: float) -> None:
        """Fill with a value up to so many rows, if there are fewer."""
        if size > self._size:
            if size > len(self._buffer):
                self._reserve(size)
            self._buffer[self._size : size] = value
            self._size = size

    def _reserve(self, needed: int) -> None:
        if self._size == 0:
            capacity = max(needed, _FIRST_CAPACITY)
        elif needed <= _DOUBLE_UNTIL:
            capacity = max(needed, 2 * len(self._buffer))
        else:
            capacity = max(needed, self._size + (self._size >> _GROWTH_SHIFT))
        larger = np.empty((capacity, *self._buffer.shape[1:]), dtype=self._buffer.dtype)
        larger[: self._size] = self.rows
        self._buffer = larger


# Set operations on arrays of documents.


Docs = npt.NDArray[np.intp]

_GROUPS_EACH: Final = 4
"""Groups of values for each wanted one; about 1.15 times as many as wanted then reach the floor."""


def distinct(docs: Docs) -> Docs:
    """The documents, ascending and without duplicates; sorts the argument in place."""
    docs.sort()
    first = np.empty(len(docs), bool)
    first[:1] = True
    np.not_equal(docs[1:], docs[:-1], out=first[1:])
    return docs[first]


def union(docs: Docs, other: Docs) -> Docs:
    """The union of two arrays; four times as fast as ``np.union1d`` for short arrays."""
    return distinct(np.concatenate((docs, other)))


def place_among(some: Docs, docs: Docs) -> npt.NDArray[np.bool_]:
    """(m,) bool: which of the ascending ``docs`` are in ``some``."""
    marked = np.zeros(len(docs), bool)
    marked[docs.searchsorted(some)] = True
    return marked


def floor_of(values: npt.NDArray[np.floating], wanted: int) -> np.floating:
    """A value that at least ``wanted`` of the values reach, and few more. There must be that many values and no NaN.

    It is the ``wanted``-th highest among the maxima of groups of values, which avoids a partition of all values (70 µs
    for 10,000).
    """
    groups = _GROUPS_EACH * wanted
    size = len(values) // groups
    highest = np.maximum.reduce(values[: size * groups].reshape(size, groups)) if size > 1 else values.copy()
    highest.partition(len(highest) - wanted)
    floor: np.floating = highest[len(highest) - wanted]
    return floor


# Variable-length runs of values by document: word pieces, days, bits.


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GatheredRuns:
    """The runs of m documents, concatenated.

    Attributes:
        at: (total,) int64 index of each value among all values.
        counts: (m,) int64: values of each document.
    """

    at: Ints
    counts: Ints

    @property
    def begins(self) -> Ints:
        """(m,) int64 start of each document's run in ``at``."""
        return np.cumsum(self.counts) - self.counts


class Ragged:
    """Runs of values.

    Args:
        dtype: Of a value.
        width: Columns of a value; None for a scalar.
    """

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._values = GrowableArray(dtype, width)
        self._start = GrowableArray(np.int64)
        self._count = GrowableArray(np.uint16)

    def __len__(self) -> int:
        return len(self._start)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._values.nbytes + self._start.nbytes + self._count.nbytes

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values."""
        return self._values.rows

    def counts_of(self, docs: npt.NDArray[np.integer]) -> Ints:
        """(m,) int64: values of each document; 0 beyond the end."""
        if not len(self):
            return np.zeros(len(docs), np.int64)
        counts = self._count.rows.take(docs, mode="clip").astype(np.int64)
        counts[docs >= len(self)] = 0
        return counts

    def gather(self, docs: npt.NDArray[np.integer]) -> GatheredRuns:
        """Locate the values of some documents."""
        counts = self.counts_of(docs)
        if not len(self):
            return GatheredRuns(np.empty(0, np.int64), counts)
        starts = self._start.rows.take(docs, mode="clip")  # those beyond the end have no values
        ends = counts.cumsum()
        at = (starts - ends + counts).repeat(counts)
        at += np.arange(len(at))
        return GatheredRuns(at, counts)

    def append(self, docs: npt.NDArray[np.integer], values: npt.NDArray[Any], counts: Ints) -> None:
        """Set the runs of some documents.

        Args:
            docs: (m,) documents.
            values: Their values, concatenated.
            counts: (m,) values of each.
        """
        if not len(docs):
            return
        self.cover(int(docs.max()) + 1)
        first = len(self._values)
        self._values.append(values)
        self._start.rows[docs] = first + np.cumsum(counts) - counts
        self._count.rows[docs] = counts

    def cover(self, documents: int) -> None:
        """Extend the documents to ``count``, with empty runs."""
        self._start.cover(documents, 0)
        self._count.cover(documents, 0)


# Names as small numbers, and sequences as documents.


ABSENT: Final = -1
"""Code of an absent agent, crew, session or actor; place of an entry that is not a document."""

Codes = npt.NDArray[np.int32]


class Vocabulary:
    """Names → small numbers, in order of first appearance."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, name: str) -> int:
        """The code of a name, ``ABSENT`` if it was never seen."""
        return self._codes.get(name, ABSENT)

    def learn(self, name: str | None) -> int:
        """The code of a name, a new one if need be; ``ABSENT`` for None."""
        return ABSENT if name is None else self._codes.setdefault(name, len(self._codes))

    def names(self) -> list[str]:
        """Every name, by code."""
        return list(self._codes)

    def learn_all(self, names: Sequence[str | None]) -> Codes:
        """(m,) int32 codes of names."""
        return np.array([self.learn(name) for name in names], np.int32)


def places_of(own: npt.NDArray[np.int64], seqs: npt.NDArray[np.int64]) -> Codes:
    """(m,) int32 places of stream sequences in the ascending ``own``, -1 where there is none."""
    if not len(own):
        return np.full(len(seqs), ABSENT, np.int32)
    place = own.searchsorted(seqs).astype(np.int32)
    place[own.take(place, mode="clip") != seqs] = ABSENT
    return place
