"""Columns of a ``pyarrow.Table`` as numpy arrays, without a Python object a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
FEW: Final = 64
"""Rows up to which Python beats Arrow, whose functions cost 10 to 50 µs a call: most commits hold a few entries."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Many texts as one run of UTF-8: text ``i`` is ``data[ends[i - 1] : ends[i]]``, ``ends[-1]`` standing for 0."""

    data: npt.NDArray[np.uint8]
    ends: Ints

    @classmethod
    def of(cls, encoded: Sequence[bytes]) -> Texts:
        """From UTF-8."""
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


def kept(table: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Some rows of a table; ``pa.array`` of a numpy array looks for pandas every time (0.3 ms)."""
    if mask.all():
        return table
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return table.filter(pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits]))


def dictionary(column: Any) -> tuple[list[Any], npt.NDArray[np.int32]]:
    """The distinct values of a column and each row's index into them, -1 for null."""
    if len(column) <= FEW:
        values = column.to_pylist()
        codes = {name: code for code, name in enumerate(dict.fromkeys(one for one in values if one is not None))}
        return list(codes), np.array([codes.get(one, -1) for one in values], np.int32)
    encoded = one_chunk(column).dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes.astype(np.int32, copy=False)


def texts(column: Any) -> Texts:
    """A column of texts or blobs without nulls."""
    if len(column) <= FEW:
        values = column.to_pylist()
        return Texts.of([one if isinstance(one, bytes) else one.encode() for one in values])
    column = one_chunk(column).cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    buffer = column.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data, offsets[1:] - offsets[0])


def runs(table: pa.Table, name: str, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """The values in a column of blobs, one blob's after the other's, and how many each blob holds."""
    found = texts(table.column(name))
    counts = found.ends.copy()
    counts[1:] -= found.ends[:-1]
    return found.data.view(np.dtype(dtype)), counts // np.dtype(dtype).itemsize


def joined(table: pa.Table, names: Sequence[str], separator: str) -> Texts:
    """The texts of some columns in one text a row; null is an empty one."""
    if table.num_rows <= FEW:
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        return Texts.of([separator.join("" if one is None else str(one) for one in row).encode() for row in rows])
    fields = [table.column(name).cast(pa.string()) for name in names]
    return texts(pc.binary_join_element_wise(*fields, separator, null_handling="replace"))
