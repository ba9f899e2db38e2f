"""The token bits of one model's entries in context, one bit per dimension.

Invariant: all bits are of one quantiser, the newest; the order in which facts arrive does not matter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .growable import GrowableArray
from .ragged import Ragged

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
