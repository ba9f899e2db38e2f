"""Sums by document: where the lexical arm adds up its terms, and where any candidate's score is read.

Why: an array over all documents is too large to be made for every query, so all queries of an index share one.

Invariant: a query begins with zeros everywhere, also if the one before failed half-way: what it touched was noted before
anything was added. Sums are readable until the next query begins, which must not happen while one is under way; searches
await nothing, so on one thread it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .lists import Docs

Scores = npt.NDArray[np.float32]

FILL_SHARE: Final = 8
"""Where more than one sum in so many was touched, all are zeroed: that costs no more, and no list of them is kept."""


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
        """Begin a query; the sums of the one before are gone.

        Args:
            lists: Documents that will be added to, one array or more.
            count: Documents that exist.

        Returns:
            (count,) float32 zeros to add to, at those documents alone, and all lists one after the other.
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
