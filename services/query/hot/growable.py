"""Arrays that grow at the end, used for every column of a hot index.

Invariant: an append never changes a view of ``rows`` that was returned earlier.
"""

from __future__ import annotations

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
