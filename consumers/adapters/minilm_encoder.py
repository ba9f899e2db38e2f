"""The forward pass of all-MiniLM-L6-v2 in numpy: vectors without torch and without a server.

Invariant: a text's vector does not depend on its batch, except for the last bits of a float: texts are packed without
padding and attention stays within a text.

Memory is bounded: weights are mapped and shared between processes, the 47 MB word-embedding table is read row by row,
and working memory is limited by the size of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no annotations
from tokenizers import Tokenizer

from .minilm_math import Floats, Gelu, Linear, Norm, WeightFile

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
