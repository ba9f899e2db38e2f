"""Columns of rows as numpy arrays: with Arrow for the many rows of a load, without it for the few of a commit.

An Arrow function costs 10 to 50 µs a call, and most commits hold a few entries, whose columns the fold has in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


class Written:
    """Rows that a commit wrote, in columns as the fold gave them: lists, tuples or numpy arrays.

    Args:
        columns: The columns.
        at: Which of their rows; None for all.
    """

    __slots__ = ("_at", "_columns")

    def __init__(self, columns: Mapping[str, Any], at: Ints | None = None) -> None:
        self._columns = columns
        self._at = at

    def column(self, name: str) -> Any:
        """A column."""
        values = self._columns[name]
        if self._at is None:
            return values
        return values[self._at] if isinstance(values, np.ndarray) else [values[at] for at in self._at.tolist()]

    def filter(self, mask: npt.NDArray[np.bool_]) -> Written:
        """Some of the rows."""
        at = np.flatnonzero(mask)
        return Written(self._columns, at if self._at is None else self._at[at])


Found: TypeAlias = pa.Table | Written
_Rows = TypeVar("_Rows", pa.Table, Written)


@dataclass(frozen=True, slots=True)
class Texts:
    """Many texts as one run of UTF-8: text ``i`` is ``data[ends[i - 1] : ends[i]]``, ``ends[-1]`` standing for 0."""

    data: npt.NDArray[np.uint8]
    ends: Ints

    @classmethod
    def of(cls, encoded: Sequence[bytes]) -> Texts:
        """From UTF-8."""
        ends = np.array(list(accumulate(map(len, encoded))), np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)


def one_chunk(column: Any) -> Any:
    """A column as a single array."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def array(hit: Found, name: str) -> npt.NDArray[Any]:
    """A column without nulls."""
    column = hit.column(name)
    values: npt.NDArray[Any] = column.to_numpy() if isinstance(column, pa.ChunkedArray) else np.asarray(column)
    return values


def values_of(hit: Found, name: str) -> Sequence[Any]:
    """A column as Python values."""
    column = hit.column(name)
    values: Sequence[Any] = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
    return values


def present(rows: _Rows, name: str) -> _Rows:
    """The rows that have a value in a column."""
    column = rows.column(name)
    if isinstance(column, pa.ChunkedArray):
        return rows.filter(column.is_valid()) if column.null_count else rows
    if isinstance(column, np.ndarray) or None not in column:
        return rows
    return rows.filter(np.array([value is not None for value in column], bool))


def sequences(hit: Found, name: str) -> Ints:
    """A column of stream sequences, int64, from a load or a commit."""
    return array(hit, name).astype(np.int64, copy=False)


def kept(table: _Rows, mask: npt.NDArray[np.bool_]) -> _Rows:
    """Some rows; ``pa.array`` of a numpy array looks for pandas every time (0.3 ms)."""
    if mask.all():
        return table
    if isinstance(table, Written):
        return table.filter(mask)
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return table.filter(pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits]))


def dictionary(column: Any) -> tuple[list[Any], npt.NDArray[np.int32]]:
    """The distinct values of a column and each row's index into them, -1 for null."""
    if not isinstance(column, pa.ChunkedArray):
        codes = {name: code for code, name in enumerate(dict.fromkeys(value for value in column if value is not None))}
        return list(codes), np.array([codes.get(value, -1) for value in column], np.int32)
    import pyarrow.compute as pc  # builds all its functions, which a start need not wait for

    encoded = one_chunk(column).dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes.astype(np.int32, copy=False)


def texts(column: Any) -> Texts:
    """A column of texts or blobs without nulls."""
    if not isinstance(column, pa.ChunkedArray):
        return Texts.of([text.encode() for text in column])
    column = one_chunk(column).cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    buffer = column.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data, offsets[1:] - offsets[0])


def runs(hit: Found, name: str, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """The values in a column of blobs, one blob's after the other's, and how many each blob holds."""
    column = hit.column(name)
    if not isinstance(column, pa.ChunkedArray):
        values = np.frombuffer(b"".join(column), dtype)
        return values, np.array([len(run) for run in column], np.int64) // values.itemsize
    blobs = texts(column)
    counts = blobs.ends.copy()
    counts[1:] -= blobs.ends[:-1]
    return blobs.data.view(np.dtype(dtype)), counts // np.dtype(dtype).itemsize


def joined(hit: Found, names: Sequence[str], separator: str) -> Texts:
    """The texts of several columns, joined to one text per row; null counts as empty."""
    if isinstance(hit, Written):
        rows = zip(*map(hit.column, names), strict=True)
        return Texts.of(
            [separator.join(["" if value is None else str(value) for value in row]).encode() for row in rows]
        )
    import pyarrow.compute as pc  # as above

    fields = [hit.column(name).cast(pa.string()) for name in names]
    return texts(pc.binary_join_element_wise(*fields, separator, null_handling="replace"))
