"""The forward pass of all-MiniLM-L6-v2 in numpy: vectors without torch and without a server.

Invariant: a text's vector does not depend on its batch, except for the last bits of a float: texts are packed without
padding and attention stays within a text.

Memory is bounded: weights are mapped and shared between processes, the 47 MB word-embedding table is read row by row,
and working memory is limited by the size of a batch.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no annotations
from tokenizers import Tokenizer

# The numpy building blocks of MiniLM, and its weight file.


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


DIM = 384
"""Width of the hidden states and of the vectors (the model's config.json)."""
HEADS = 12
HEAD_DIM = DIM // HEADS
LAYERS = 6
MAX_WORD_PIECES = 256
"""Longest input in word pieces, [CLS] and [SEP] included (the model's sentence_bert_config.json)."""
BATCH_WORD_PIECES = 2048
"""Most word pieces in one pass; at 10 KB of memory each, about 20 MB."""
FEED_FORWARD_ROWS = 256
"""Rows of the feed-forward block computed at once: 1.5 MB of activations instead of 12 MB."""
ATTENTION_CELLS = 1 << 17
"""Most (query, key) pairs of one head in one attention call; 12 heads need 6 MB."""


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Linear  # (3 · DIM, DIM), query rows already divided by sqrt(HEAD_DIM)
    attention_out: Linear
    attention_norm: Norm
    feed_in: Linear
    feed_out: Linear
    feed_norm: Norm


def _layer(weights: WeightFile, number: int) -> _Layer:
    prefix = f"encoder.layer.{number}"
    query, key, value = (weights.linear(f"{prefix}.attention.self.{part}") for part in ("query", "key", "value"))
    scale = np.float32(HEAD_DIM**-0.5)
    return _Layer(
        qkv=Linear(
            np.concatenate([query.weight * scale, key.weight, value.weight]),
            np.concatenate([query.bias * scale, key.bias, value.bias]),
        ),
        attention_out=weights.linear(f"{prefix}.attention.output.dense"),
        attention_norm=weights.norm(f"{prefix}.attention.output.LayerNorm"),
        feed_in=weights.linear(f"{prefix}.intermediate.dense"),
        feed_out=weights.linear(f"{prefix}.output.dense"),
        feed_norm=weights.norm(f"{prefix}.output.LayerNorm"),
    )


def batches(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Group texts by length, shortest first, into groups of at most `limit` word pieces.

    A longer text is a group of its own.
    """
    group: list[int] = []
    size = 0
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if group and size + lengths[index] > limit:
            yield group
            group, size = [], 0
        group.append(index)
        size += lengths[index]
    if group:
        yield group


def pooled(hidden: Floats, lengths: Sequence[int]) -> Floats:
    """Mean-pool each text's states and normalise: `(texts, 384)` float32."""
    starts = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.intp)]).astype(np.intp)
    sums: Floats = np.add.reduceat(hidden, starts, axis=0)
    sums /= np.linalg.norm(
        sums, axis=1, keepdims=True
    )  # the normalisation makes the division by the length unnecessary
    return sums


class MiniLmEncoder:
    """all-MiniLM-L6-v2: BERT with 6 layers, 12 heads, post-layer-norm; mean pooling; L2 norm.

    Limits the BLAS of this process to one thread, since further threads would compete with the event loop and DuckDB
    for cores.

    Args:
        directory: A folder with `model.safetensors` and `tokenizer.json`, already verified
            (`minilm_weights.find_minilm`).

    Raises:
        OSError, KeyError, ValueError: A file is missing or is not this model.
    """

    def __init__(self, directory: Path) -> None:
        threadpool_limits(limits=1, user_api="blas")
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_WORD_PIECES)
        self._tokenizer.no_padding()
        weights = WeightFile(directory / "model.safetensors")
        self._word_offset, (_, width) = weights.span("embeddings.word_embeddings.weight")
        if width != DIM:
            raise ValueError(f"the model is {width} wide, not {DIM}")
        position = weights.map("embeddings.position_embeddings.weight")[:MAX_WORD_PIECES]
        # Every token has type 0, so its row is added once here.
        self._position: Floats = position + weights.map("embeddings.token_type_embeddings.weight")[0]
        self._embedding_norm = weights.norm("embeddings.LayerNorm")
        self._layers = [_layer(weights, number) for number in range(LAYERS)]
        self._gelu = Gelu()
        self._weights = weights

    def close(self) -> None:
        """Close the weight file."""
        self._weights.close()

    def encode(self, texts: Sequence[str]) -> Floats:
        """Embed texts without a prefix, cut to 256 word pieces.

        Blocks for about 35 ms per hundred word pieces, so call it in a thread. Thread-safe.

        Returns:
            `(len(texts), 384)` float32, rows L2-normalised, in the order given.
        """
        pieces = [self.word_pieces(text) for text in texts]
        vectors: Floats = np.empty((len(texts), DIM), dtype=np.float32)
        for group in batches([len(ids) for ids in pieces], BATCH_WORD_PIECES):
            vectors[group] = self.encode_pieces([pieces[index] for index in group])
        return vectors

    def word_pieces(self, text: str) -> list[int]:
        """The ids of a text's word pieces, at most 256, with [CLS] and [SEP]."""
        # One text per call: encode_batch would start one thread per core.
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_pieces(self, pieces: Sequence[Sequence[int]], interlude: Callable[[], None] | None = None) -> Floats:
        """Embed texts given as word pieces, best sorted by length.

        Args:
            pieces: Ids of the word pieces of each text; at least one text.
            interlude: Called before each of the six layers, so that the caller can run more urgent work.

        Returns:
            `(len(pieces), 384)` float32, rows L2-normalised.
        """
        return pooled(self.hidden(pieces, interlude), [len(ids) for ids in pieces])

    def hidden(self, pieces: Sequence[Sequence[int]], interlude: Callable[[], None] | None = None) -> Floats:
        """The last hidden states of all word pieces, text after text; arguments as in `encode_pieces`.

        Returns:
            `(word pieces, 384)` float32.
        """
        lengths = [len(ids) for ids in pieces]
        hidden = self._embed(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in pieces]), lengths)
        for layer in self._layers:
            if interlude is not None:
                interlude()
            hidden = self._apply(layer, hidden, lengths)
        return hidden

    def _embed(self, ids: npt.NDArray[np.int64], lengths: Sequence[int]) -> Floats:
        unique, inverse = np.unique(ids, return_inverse=True)
        rows = self._weights.rows(self._word_offset, DIM, unique)
        hidden: Floats = rows[inverse]
        start = 0
        for length in lengths:
            hidden[start : start + length] += self._position[:length]
            start += length
        self._embedding_norm(hidden)
        return hidden

    def _apply(self, layer: _Layer, hidden: Floats, lengths: Sequence[int]) -> Floats:
        context = self._attend(layer.qkv(hidden), lengths)
        attended = layer.attention_out(context)
        attended += hidden
        layer.attention_norm(attended)
        for start in range(0, len(attended), FEED_FORWARD_ROWS):
            rows = attended[start : start + FEED_FORWARD_ROWS]
            inner = layer.feed_in(rows)
            self._gelu(inner)
            layer_rows = layer.feed_out(inner)
            layer_rows += rows
            layer.feed_norm(layer_rows)
            rows[:] = layer_rows
        return attended

    def _attend(self, qkv: Floats, lengths: Sequence[int]) -> Floats:
        """Softmax attention within each text; texts of equal length share the calls."""
        context: Floats = np.empty((len(qkv), DIM), dtype=np.float32)
        start = 0
        for length, run in groupby(lengths):
            left = len(list(run))
            at_once = max(1, ATTENTION_CELLS // (length * length))
            while left:
                count = min(left, at_once)
                end = start + count * length
                heads = qkv[start:end].reshape(count, length, 3, HEADS, HEAD_DIM)
                query, key, value = (heads[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
                scores = query @ key.transpose(0, 1, 3, 2)
                scores -= scores.max(axis=-1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(axis=-1, keepdims=True)
                target = context[start:end].reshape(count, length, HEADS, HEAD_DIM)
                np.matmul(scores, value, out=target.transpose(0, 2, 1, 3))
                start, left = end, left - count
        return context
