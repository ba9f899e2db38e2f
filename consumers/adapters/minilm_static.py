"""The static table of late interaction: each word piece of the vocabulary without context, one bit per dimension.

Row w is the sign of MiniLM's last hidden state at the position of w for the input ``[CLS] w [SEP]``, minus the mean
over real pieces. With it, late interaction works for entries without a vector.

Invariant: computed once from the verified weights and stored beside them; a file that does not match its stamp (size,
hash, version, weights) is computed again. Tables of two machines may differ in a few bits, so the table is a cache and
not published.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.vocabulary import SIZE, vocabulary
from .minilm_encoder import DIM, MiniLmEncoder

Bits = npt.NDArray[np.uint8]

TABLE_FILE: Final = "static_bits.bin"
TABLE_STAMP: Final = "static_bits.json"
TABLE_VERSION: Final = 1
WIDTH: Final = DIM // 8
FIRST_WORD: Final = 1_000
"""First id of the pieces that the mean covers; lower ids are unused slots, control pieces and single characters."""
WORDS_AT_ONCE: Final = 320
"""Word pieces in one pass: 960 positions, whose activations fit into the cache."""
THREADS: Final = 2
_CLS: Final = "[CLS]"
_SEP: Final = "[SEP]"


def build_table(encoder: MiniLmEncoder) -> Bits:
    """Compute the table: (30,522, 48) uint8. Takes 28 s of CPU at 2.5 GHz."""
    known = vocabulary()
    cls, sep = known[_CLS], known[_SEP]
    states = np.empty((SIZE, DIM), np.float32)

    def compute(start: int) -> None:
        words = range(start, min(start + WORDS_AT_ONCE, SIZE))
        hidden = encoder.hidden([(cls, word, sep) for word in words])
        states[words.start : words.stop] = hidden.reshape(-1, 3, DIM)[:, 1]

    with ThreadPoolExecutor(THREADS, thread_name_prefix="minilm-static") as pool:
        list(pool.map(compute, range(0, SIZE, WORDS_AT_ONCE)))
    return np.packbits(states > states[FIRST_WORD:].mean(axis=0), axis=1)


def load_table(directory: Path, weights_sha256: str) -> Bits | None:
    """The stored table, (30,522, 48) uint8, read-only; None if it is missing or does not match its stamp.

    Args:
        directory: The model's folder.
        weights_sha256: Hash of the weights from which the table must have been computed.
    """
    try:
        stamp = json.loads((directory / TABLE_STAMP).read_bytes())
        data = (directory / TABLE_FILE).read_bytes()
    except (OSError, ValueError):
        return None
    if stamp != _stamp(data, weights_sha256) or len(data) != SIZE * WIDTH:
        return None
    return np.frombuffer(data, np.uint8).reshape(SIZE, WIDTH)


def ensure_table(directory: Path, weights_sha256: str, progress: Callable[[str], None] | None = None) -> Bits:
    """The table, computed and stored if missing. Blocking, for a thread.

    Args:
        directory: The model's folder, with verified weights.
        weights_sha256: Hash of those weights.
        progress: Called with a message before the computation.
    """
    table = load_table(directory, weights_sha256)
    if table is not None:
        return table
    if progress is not None:
        progress(f"computing the table of {SIZE:,} word pieces for late interaction (takes half a minute)")
    encoder = MiniLmEncoder(directory)
    try:
        table = build_table(encoder)
    finally:
        encoder.close()
    data = table.tobytes()
    try:
        _replace(directory / TABLE_FILE, data)
        _replace(directory / TABLE_STAMP, json.dumps(_stamp(data, weights_sha256)).encode())
    except OSError:
        pass  # the cache is read-only: computed at every start
    return table


def _stamp(data: bytes, weights_sha256: str) -> dict[str, object]:
    return {"version": TABLE_VERSION, "weights": weights_sha256, "sha256": hashlib.sha256(data).hexdigest()}


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
