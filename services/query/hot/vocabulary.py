"""Names as small numbers, and sequences as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

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
