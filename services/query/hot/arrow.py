"""Columns of a ``pyarrow.Table`` as numpy arrays, without a Python object a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Texts:
    """Many texts as one run of UTF-8: text ``i`` is ``data[ends[i - 1] : ends[i]]``, ``ends[-1]`` standing for 0."""

    data: npt.NDArray[np.uint8]
    ends: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """From strings."""
        encoded = [one.encode() for one in texts]
        ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)


def one_chunk(column: Any) -> Any:
    """A column as a single array."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def array(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column without nulls."""
    values: npt.NDArray[Any] = table.column(name).to_numpy()
    return values


def sequences(table: pa.Table, name: str) -> Ints:
    """A column of stream sequences, int64 wherever they come from."""
    return array(table, name).astype(np.int64, copy=False)


def dictionary(column: Any) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """The distinct values of a column and each row's index into them, -1 for null."""
    encoded = one_chunk(column).dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes.astype(np.int32, copy=False)


def texts(column: Any) -> Texts:
    """A column of texts or blobs without nulls."""
    column = one_chunk(column).cast(pa.large_binary())
    if not len(column):
        return Texts(np.empty(0, np.uint8), np.empty(0, np.int64))
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    buffer = column.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data, offsets[1:] - offsets[0])


def runs(table: pa.Table, name: str, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """The values in a column of blobs, one blob's after the other's, and how many each blob holds."""
    found = texts(table.column(name))
    return found.data.view(np.dtype(dtype)), np.diff(found.ends, prepend=0) // np.dtype(dtype).itemsize
