"""Variable-length runs of values by document: word pieces, days, bits.

Invariant: a document has one run; the values of a replaced run are not reclaimed, since replacing is rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .growable import GrowableArray

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
