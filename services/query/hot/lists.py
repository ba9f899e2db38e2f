"""Set operations on arrays of documents.

Searches use ``intp``, because numpy converts other index types at every access (10,000 values: 31 µs instead of 11).
Invariant: results are ascending and without duplicates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

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
