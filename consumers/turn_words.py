"""What words say of a turn, looked up once in a process and kept as columns.

Why: a batch of 5,000 entries has 10,000 distinct words, and asking the rules for each, remembered or not, costs 15 µs an
entry, a quarter of a rebuild; as columns it is 2 once the words have been met.

Invariant: only ever a memory of ``rules.turns.meanings_of`` and ``rules.word_pieces.pieces_of``; it is emptied when full,
and shared by the threads of all hosts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crew_journal.schemas.languages import languages
from crew_journal.schemas.rules.turns import meanings_of
from crew_journal.schemas.rules.word_pieces import pieces_of

WORDS_KEPT: Final = 200_000
"""Words until all are forgotten: some 30 MB. English conversation of 4 million words has 50,000."""
PIECES_DTYPE: Final = np.dtype("<u2")


@dataclass(frozen=True, slots=True)
class WordColumns:
    """Facts of m words, L languages.

    Attributes:
        function: (m, L) int64, 1 for a function word.
        flags: (m, L) uint8.
        starts: (m,) int64, where each word's pieces begin in ``pieces``.
        sizes: (m,) int64, how many it has.
        pieces: uint16, the pieces of all words kept.
    """

    function: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.uint16]


class _Words:
    """The words met so far; arrays are replaced when they grow, so what was handed out stays as it was."""

    def __init__(self) -> None:
        spoken = len(languages())
        self.known: dict[str, int] = {}
        self.function = np.zeros((0, spoken), np.int64)
        self.flags = np.zeros((0, spoken), np.uint8)
        self.starts = np.zeros(0, np.int64)
        self.sizes = np.zeros(0, np.int64)
        self.pieces = np.zeros(0, PIECES_DTYPE)

    def learn(self, words: list[str]) -> None:
        """Add words that are not known yet, each once."""
        meanings = [meanings_of(word) for word in words]
        cut = [pieces_of(word) for word in words]
        sizes = np.fromiter(map(len, cut), np.int64, len(cut))
        first = len(self.known)
        self.function = _below(self.function, [[said.function for said in one] for one in meanings])
        self.flags = _below(self.flags, [[said.flags for said in one] for one in meanings])
        self.starts = np.concatenate((self.starts, len(self.pieces) + np.cumsum(sizes) - sizes))
        self.sizes = np.concatenate((self.sizes, sizes))
        self.pieces = _below(self.pieces, [piece for one in cut for piece in one])
        self.known.update((word, first + place) for place, word in enumerate(words))


def _below(rows: npt.NDArray[Any], more: list[Any]) -> npt.NDArray[Any]:
    return np.concatenate((rows, np.array(more, rows.dtype).reshape(-1, *rows.shape[1:])))


class _Memory:
    """The one memory of this process; made at its first use."""

    lock = threading.Lock()
    words: _Words | None = None


def columns_of(distinct: list[str]) -> WordColumns:
    """The facts of folded words, each named once."""
    with _Memory.lock:
        words = _Memory.words
        if words is None or len(words.known) + len(distinct) > WORDS_KEPT:
            words = _Memory.words = _Words()
        if unknown := [word for word in distinct if word not in words.known]:
            words.learn(unknown)
        at = np.fromiter(map(words.known.__getitem__, distinct), np.int64, len(distinct))
        return WordColumns(words.function[at], words.flags[at], words.starts[at], words.sizes[at], words.pieces)
