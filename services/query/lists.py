"""Ascending lists of documents: their union, and who is among whom.

Invariant: what goes in ascending comes out ascending, each document once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Docs = npt.NDArray[np.int32]


def union(one: Docs, other: Docs) -> Docs:
    """Every document of the two lists once, ascending; ``np.union1d`` takes four times as long for so few."""
    docs = np.concatenate((one, other))
    docs.sort()
    first = np.ones(len(docs), bool)
    np.not_equal(docs[1:], docs[:-1], out=first[1:])
    return docs[first]


def place_among(some: Docs, docs: Docs) -> npt.NDArray[np.bool_]:
    """(m,) bool: which of the ascending ``docs`` are among ``some``."""
    marked = np.zeros(len(docs), bool)
    marked[docs.searchsorted(some)] = True
    return marked
