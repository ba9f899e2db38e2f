"""The numpy building blocks of MiniLM, and its weight file.

Invariant: all blocks use float32, and none copies a weight.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

FLOAT32_LE = np.dtype("<f4")
LAYER_NORM_EPS = np.float32(1e-12)
"""From the model's config.json."""

GELU_STEPS_PER_UNIT = 2048
"""Grid of the GELU table, a power of two so that scaling by it is exact. Linear interpolation errs by at most
h²/8 · max|gelu''| = 2048⁻²/8 · 0.8 = 2.4e-8."""
GELU_RANGE = 6
"""Beyond ±6, gelu(x) is 0 or x within 6e-9; the outermost segments of the table extrapolate to these."""

FEW_ROWS = 64
"""Up to this many rows, `W xᵀ` in small blocks is faster than `x Wᵀ`, for which OpenBLAS repacks W: a query of 14 word
pieces takes 10.8 ms instead of 19. From 256 rows on, there is no difference.
"""
FEW_ROWS_BLOCK = 32
"""Output rows per call; the fastest of 16, 32, 64, 128 for 8 to 32 rows."""
FEW_ROWS_MULTIPLE = 16
"""Rows are padded to the SIMD width: 14 rows took 8.3 ms, 16 rows 6.1 ms."""


class Gelu:
    """Exact (erf) GELU, x · Φ(x) = x/2 · (1 + erf(x/√2)), interpolated linearly between values of `math.erf`.

    numpy has no erf. Linear interpolation errs by at most 2.4e-8 (see `GELU_STEPS_PER_UNIT`); with rounding, the error
    is below 1e-7 for results below 1 and within one unit in the last place above.
    """

    def __init__(self) -> None:
        bound = GELU_RANGE * GELU_STEPS_PER_UNIT
        grid = [step / GELU_STEPS_PER_UNIT for step in range(-bound, bound + 1)]
        exact = np.array([0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0))) for x in grid])
        exact[:2] = 0.0
        exact[-2:] = grid[-2:]
        self._values: Floats = exact[:-1].astype(np.float32)
        self._slopes: Floats = np.diff(exact).astype(np.float32)
        self._bound = bound

    def __call__(self, x: Floats) -> None:
        """Replace `x` (any shape, float32, finite) by gelu(x), in place."""
        x *= np.float32(GELU_STEPS_PER_UNIT)
        cell = np.clip(x, np.float32(-self._bound), np.float32(self._bound - 1))
        np.floor(cell, out=cell)
        x -= cell  # the position inside the cell, or beyond the outermost one
        index = cell.astype(np.intp)
        index += self._bound
        np.take(self._slopes, index, out=cell, mode="clip")
        x *= cell
        np.take(self._values, index, out=cell, mode="clip")
        x += cell


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation over the last axis."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> None:
        """Normalise `x` (n, d), in place."""
        x -= x.mean(axis=-1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[-1])
        x /= np.sqrt(variance + LAYER_NORM_EPS)[:, None]
        x *= self.weight
        x += self.bias


@dataclass(frozen=True, slots=True)
class Linear:
    """A dense block: y = x Wᵀ + b."""

    weight: Floats  # (out, in), out a multiple of FEW_ROWS_BLOCK
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        """Map `x` (n, in) to a new (n, out)."""
        if len(x) <= FEW_ROWS:
            return self._few_rows(x)
        y: Floats = x @ self.weight.T
        y += self.bias
        return y

    def _few_rows(self, x: Floats) -> Floats:
        width_out, width_in = self.weight.shape
        columns = -(-len(x) // FEW_ROWS_MULTIPLE) * FEW_ROWS_MULTIPLE
        transposed: Floats = np.zeros((width_in, columns), dtype=np.float32)
        transposed[:, : len(x)] = x.T
        product = self.weight.reshape(-1, FEW_ROWS_BLOCK, width_in) @ transposed
        y: Floats = np.empty((len(x), width_out), dtype=np.float32)
        np.add(product.reshape(width_out, columns)[:, : len(x)].T, self.bias, out=y)
        return y


class WeightFile:
    """The float32 tensors of a safetensors file, mapped (shared, read-only) or read row by row.

    Format: 8 bytes little-endian header length, a JSON header with dtype, shape and byte span of each tensor, then the
    data. The library's own numpy reader is not used, because it copies every tensor, 90 MB in all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        length = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        self._header = json.loads(os.pread(self._descriptor, length, 8))
        self._data_start = 8 + length

    def close(self) -> None:
        """Close the file; mapped tensors stay valid."""
        os.close(self._descriptor)

    def span(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Offset of a tensor in the file, in bytes, and its shape.

        Raises:
            KeyError: The file does not have the tensor.
            ValueError: The tensor is not float32.
        """
        entry = self._header[name]
        if entry["dtype"] != "F32":
            raise ValueError(f"{name} is {entry['dtype']}, not F32")
        return self._data_start + entry["data_offsets"][0], tuple(entry["shape"])

    def map(self, name: str) -> Floats:
        """A read-only array over the file's pages."""
        offset, shape = self.span(name)
        mapped: Floats = np.asarray(np.memmap(self._path, dtype=FLOAT32_LE, mode="r", offset=offset, shape=shape))
        return mapped

    def rows(self, offset: int, width: int, numbers: npt.NDArray[np.integer]) -> Floats:
        """Read single rows of the (n, width) tensor at `offset` into a new array, one `pread` each.

        In a mapped table, each row read would make 64 KB around it resident.
        """
        row_bytes = width * FLOAT32_LE.itemsize
        data = b"".join(os.pread(self._descriptor, row_bytes, offset + int(number) * row_bytes) for number in numbers)
        return np.frombuffer(data, dtype=FLOAT32_LE).reshape(len(numbers), width)

    def linear(self, prefix: str) -> Linear:
        """The dense block with this name."""
        return Linear(self.map(f"{prefix}.weight"), self.map(f"{prefix}.bias"))

    def norm(self, prefix: str) -> Norm:
        """The layer norm with this name."""
        return Norm(self.map(f"{prefix}.weight"), self.map(f"{prefix}.bias"))
