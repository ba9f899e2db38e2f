"""A cache of words as columns: their terms in the full text, and their meanings in a turn.

A batch of 5,000 entries has 20,000 distinct words, a batch of 50 entries has 900. Computing them costs 15 µs per entry.
A lookup in a dict of this size costs 0.4 µs (a miss of the processor's cache), so each word is looked up once for all
folds.

Invariant: it only caches ``Analyzer``, ``schemas/recall/turns.meanings_of`` and ``schemas/text/word_pieces.pieces_of``;
it is emptied when full, and shared by the threads of all hosts.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import pack
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.timestamps import DAY_MS
from ...schemas.recall.turns import meanings_of
from ...schemas.text.analyzer import Analyzer, date_prefix, parts_of, strings_in, words_of
from ...schemas.text.languages import languages
from ...schemas.text.stop_words import foreign_language, foreign_words
from ...schemas.text.word_pieces import pieces_of
from ..projection import Batch
from .payloads import shown_payload

WORDS_KEPT: Final = 200_000
"""Number of words at which the cache is emptied, about 30 MB. English conversation of 4 million words has 50,000."""
CHARS_KEPT: Final = 8_000_000
"""Number of characters at which the cache is emptied, because a word may have any length: a hexadecimal dump is one word."""
PIECES_DTYPE: Final = np.dtype("<u2")
_FEW: Final = 1_024
"""Initial capacity of a column in rows."""

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WordColumns:
    """Properties of m words for turns, in L languages.

    Attributes:
        function: (m, L) int64, 1 for a function word.
        flags: (m, L) uint8.
        starts: (m,) int64, where each word's pieces begin in ``pieces``.
        sizes: (m,) int64, number of pieces of each word.
        pieces: uint16, the pieces of all cached words.
    """

    function: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints
    pieces: npt.NDArray[np.uint16]


class _Column:
    """An append-only column, so that returned slices stay valid; its capacity doubles, so that most appends copy nothing."""

    def __init__(self, dtype: npt.DTypeLike, *width: int) -> None:
        self.rows: npt.NDArray[Any] = np.zeros((_FEW, *width), dtype)
        self.size = 0

    def add(self, more: npt.ArrayLike) -> None:
        """Append rows."""
        added = np.asarray(more, self.rows.dtype).reshape(-1, *self.rows.shape[1:])
        end = self.size + len(added)
        if end > len(self.rows):
            grown = np.zeros((max(end, 2 * len(self.rows)), *self.rows.shape[1:]), self.rows.dtype)
            grown[: self.size] = self.rows[: self.size]
            self.rows = grown
        self.rows[self.size : end] = added
        self.size = end


class _WordTable:
    """The cached words: a number for each word, columns by that number, and further columns for words in turns."""

    def __init__(self) -> None:
        import Stemmer

        spoken = len(languages())
        self.numbers: dict[str, int] = {}
        self.chars = 0
        self.analyzer = Analyzer(Stemmer.Stemmer, cache_size=0)
        self.key = _Column(np.uint64)
        self.is_foreign = _Column(np.bool_)
        self.part_starts = _Column(np.int64)
        self.part_sizes = _Column(np.int64)
        self.parts = _Column(np.uint64)
        self.turn_row = _Column(np.int64)
        self.function = _Column(np.int64, spoken)
        self.flags = _Column(np.uint8, spoken)
        self.starts = _Column(np.int64)
        self.sizes = _Column(np.int64)
        self.pieces = _Column(PIECES_DTYPE)

    def find(self, words: list[str]) -> Ints:
        """The number of each word; new words are added."""
        numbers = self.numbers
        numbers_: list[Any] = list(map(numbers.get, words))
        if None in numbers_:
            places = [place for place, number in enumerate(numbers_) if number is None]
            unknown = list(dict.fromkeys([words[place] for place in places]))
            folded = [word.casefold() for word in unknown]
            self.key.add(np.array(self.analyzer.keys_of(folded), np.uint64))
            self.is_foreign.add([word in foreign_words() for word in folded])
            parts = [parts_of(word) for word in unknown]
            keys = np.array(self.analyzer.keys_of([part for words in parts for part in words]), np.uint64)
            counts = np.fromiter(map(len, parts), np.int64, len(parts))
            sizes = np.bincount(np.repeat(np.arange(len(parts)), counts)[keys != 0], minlength=len(parts))
            self.part_starts.add(self.parts.size + np.cumsum(sizes) - sizes)
            self.part_sizes.add(sizes)
            self.parts.add(keys[keys != 0])
            self.turn_row.add(np.full(len(unknown), -1))
            self.chars += sum(map(len, unknown))
            numbers.update(zip(unknown, range(len(numbers), len(numbers) + len(unknown)), strict=True))
            for place in places:
                numbers_[place] = numbers[words[place]]
        return np.array(numbers_, np.int64)

    def learn(self, words: list[str], numbers: Ints) -> None:
        """Compute the properties of words for turns; ``words`` has no repeats."""
        meanings = [meanings_of(word.casefold()) for word in words]
        cut = [pieces_of(word.casefold()) for word in words]
        sizes = np.fromiter(map(len, cut), np.int64, len(cut))
        self.turn_row.rows[numbers] = np.arange(self.sizes.size, self.sizes.size + len(words))
        self.function.add([[meaning.function for meaning in row] for row in meanings])
        self.flags.add([[meaning.flags for meaning in row] for row in meanings])
        self.starts.add(self.pieces.size + np.cumsum(sizes) - sizes)
        self.sizes.add(sizes)
        self.pieces.add([piece for row in cut for piece in row])


class _Memory:
    """The cache of this process; created at its first use."""

    lock = threading.Lock()
    words: _WordTable | None = None


class KnownWords:
    """Distinct words with their columns at the time of the lookup."""

    def __init__(self, words: list[str]) -> None:
        """Look up words; ``words`` has no repeats.

        Args:
            words: As written.
        """
        self._words = words
        with _Memory.lock:
            memory = _Memory.words
            if memory is None or len(memory.numbers) + len(words) > WORDS_KEPT or memory.chars > CHARS_KEPT:
                memory = _Memory.words = _WordTable()
            self._memory = memory
            self._numbers = memory.find(words)
            self.keys: npt.NDArray[np.uint64] = memory.key.rows[self._numbers]
            """The term key of each word, 0 for a stop word."""
            self.is_foreign: npt.NDArray[np.bool_] = memory.is_foreign.rows[self._numbers]
            """Whether each word is a stop word of a language other than English."""
            self.part_sizes: Ints = memory.part_sizes.rows[self._numbers]
            """Number of parts of each word that are terms."""

    def part_keys(self, at: npt.NDArray[np.integer]) -> U64:
        """The keys of the parts of the words at ``at``, concatenated."""
        sizes = self.part_sizes[at]
        starts = self._memory.part_starts.rows[self._numbers[at]]
        begins = np.cumsum(sizes) - sizes
        keys: U64 = self._memory.parts.rows[np.arange(int(sizes.sum())) + np.repeat(starts - begins, sizes)]
        return keys

    def foreign_keys(self, at: npt.NDArray[np.integer]) -> list[int]:
        """The further terms of the words of one text in its language; empty if the text is English."""
        tokens = [self._words[word].casefold() for word in at.tolist()]
        language = foreign_language(tokens)
        if language is None:
            return []
        with _Memory.lock:
            return [key for key in self._memory.analyzer.foreign_keys(tokens, language) if key]

    def in_turns(self, chosen: Ints) -> WordColumns:
        """The properties for turns of the words at ``chosen``, which has no repeats."""
        numbers = self._numbers[chosen]
        with _Memory.lock:
            memory = self._memory
            silent = memory.turn_row.rows[numbers] < 0
            if silent.any():
                memory.learn([self._words[at] for at in chosen[silent].tolist()], numbers[silent])
            row = memory.turn_row.rows[numbers]
            return WordColumns(
                memory.function.rows[row],
                memory.flags.rows[row],
                memory.starts.rows[row],
                memory.sizes.rows[row],
                memory.pieces.rows,
            )


# Splits the texts of a whole batch into tokens at once, for every fold that counts or indexes words.


DATE_TOKENS: Final = 3
"""Number of tokens of the date prefix (``7 May 2023``) of every indexed text."""
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
    """The cached columns of the words of ``batch_tokens``, looked up once and shared between folds."""
    known = batch.shared.get(SHARED_WORDS)
    if known is None:
        known = batch.shared[SHARED_WORDS] = KnownWords(batch_tokens(batch).words)
    words: KnownWords = known
    return words


def _cut(entries: list[EntryRecorded]) -> BatchTokens:
    import pyarrow.compute as pc  # imported here, because the import is slow and a start does not need it

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


# The terms of a text, as a ``TextRow`` holds them.


_MOST: Final = 2**16 - 1
FEW_TERMS: Final = 48
"""Up to this number of terms, sorting them in Python is faster than in numpy: 5 instead of 20 µs for 32 terms."""


@cache
def text_analyzer() -> Analyzer:
    """The analyzer of the folds of texts, which share the words that it has learned."""
    import Stemmer

    return Analyzer(Stemmer.Stemmer)


def chunk_terms(analyzer: Analyzer, text: str) -> tuple[bytes, bytes]:
    """The terms of a text as uint64 keys, each once and sorted, and how often each occurs as uint16; little-endian."""
    return counted_terms(analyzer.keys_in(text, stops=True))


def fact_terms(analyzer: Analyzer, text: str) -> tuple[bytes, bytes]:
    """As ``chunk_terms``, without stop words: facts and names of entities are a few words, of which none is common."""
    return counted_terms(analyzer.keys_in(text, stops=False))


def counted_terms(keys: list[int]) -> tuple[bytes, bytes]:
    """Term keys, each once and sorted, and how often each occurs; as ``chunk_terms``."""
    if len(keys) <= FEW_TERMS:
        counted = Counter(keys)
        few = sorted(counted)
        return pack(f"<{len(few)}Q", *few), pack(f"<{len(few)}H", *map(counted.__getitem__, few))
    terms, counts = np.unique(np.array(keys, "<u8"), return_counts=True)
    return terms.tobytes(), np.minimum(counts, _MOST).astype("<u2").tobytes()
