"""An array of sums by document, in which the lexical arm adds up scores.

All queries of an index share one array, which is too large to create for each query. Invariant: a query starts with
zeros, even after one that failed, because touched documents are recorded before anything is added. The sums are valid
until the next query begins; searches do not await, so queries never overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .lists import Docs

Scores = npt.NDArray[np.float32]

FILL_SHARE: Final = 8
"""If more than one sum in this many was touched, all are zeroed instead of keeping a list."""


class Sums:
    """The sums of one index."""

    def __init__(self) -> None:
        self._sums = np.zeros(0, np.float32)
        self._touched: Docs | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._sums.nbytes + (0 if self._touched is None else self._touched.nbytes)

    def begin(self, lists: Sequence[Docs], count: int) -> tuple[Scores, Docs]:
        """Begin a query with zeros.

        Args:
            lists: Documents whose sums will be used, one or more arrays.
            count: Number of documents.

        Returns:
            (count,) float32 zeros, writable at those documents only, and the concatenated lists.
        """
        touched = np.concatenate(lists)
        if len(self._sums) < count:
            self._sums = np.zeros(count + count // 8, np.float32)
        elif self._touched is None:
            self._sums.fill(0.0)
        else:
            self._sums[self._touched] = 0.0
        self._touched = touched if len(touched) * FILL_SHARE < len(self._sums) else None
        return self._sums[:count], touched
