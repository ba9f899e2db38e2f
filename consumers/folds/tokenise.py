"""Cuts the texts of a whole batch into tokens at once, for every fold that counts or indexes words.

Invariant: the words are those of ``rules.text.words_of(rules.text.indexed_text(...))``, which a test proves. It exists
because cutting and counting one text at a time costs 40 µs an entry, most of it under the interpreter lock; this way it is
5 µs, mostly in Arrow without the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.events.envelope import EntryRecorded
from ...schemas.rules.text import date_prefix, strings_in, words_of
from ...schemas.timestamps import DAY_MS
from ..projection import Batch
from .payloads import shown_payload
from .words import KnownWords

DATE_TOKENS: Final = 3
"""Tokens of the date prefix (``7 May 2023``) that every indexed text begins with."""
SHARED_TOKENS: Final = "tokens"
"""Key in ``Batch.shared``."""
SHARED_WORDS: Final = "words"
"""Likewise."""

_ASCII: Final = bytes(code if 65 <= code <= 90 or 97 <= code <= 122 or 48 <= code <= 57 else 32 for code in range(256))
"""Replaces every character except ASCII letters and digits by a blank."""


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of every entry of a batch, as written, date first, in order of the text.

    Attributes:
        words: The distinct tokens; capital letters make a difference.
        word: (tokens,) int32, index into ``words`` of each token.
        counts: (entries,) int64, tokens of each entry.
    """

    words: list[str]
    word: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]


def batch_tokens(batch: Batch) -> BatchTokens:
    """The tokens of the batch's entries, computed once and shared between folds."""
    known = batch.shared.get(SHARED_TOKENS)
    if known is None:
        known = batch.shared[SHARED_TOKENS] = _cut(batch.entries)
    tokens: BatchTokens = known
    return tokens


def batch_words(batch: Batch) -> KnownWords:
    """What is known of the words of ``batch_tokens``, looked up once and shared between folds."""
    known = batch.shared.get(SHARED_WORDS)
    if known is None:
        known = batch.shared[SHARED_WORDS] = KnownWords(batch_tokens(batch).words)
    words: KnownWords = known
    return words


def _cut(entries: list[EntryRecorded]) -> BatchTokens:
    import pyarrow.compute as pc  # builds all its functions, which a start need not wait for

    texts = pa.array([_blank_separated(entry) for entry in entries], pa.binary()).cast(pa.large_string())
    lists: Any = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(texts))
    counts = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    encoded: Any = lists.flatten().dictionary_encode()
    return BatchTokens(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(), counts)


def _blank_separated(entry: EntryRecorded) -> bytes:
    body = entry.entry
    payload = shown_payload(body)
    text = body.summary if not payload else " ".join((body.summary, *strings_in(payload)))
    date = _date(entry.ts_ms // DAY_MS)
    if text.isascii():
        return date + text.encode().translate(_ASCII)
    return date + " ".join(words_of(text)).encode()


@lru_cache(maxsize=4_096)
def _date(day: int) -> bytes:
    return date_prefix(day * DAY_MS).encode() + b" "
