"""``conversation_turns``: features of each turn of a conversation, for conversational recipes.

Invariant: one row for every entry of a conversation type, a function of the entry alone; no weights and no tokenizer
are needed, so a node without a model folds the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...schemas.catalogue import info_of
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import hash64
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import DAY_MS
from ...schemas.entries.tables import TURNS, TURNS_PROJECTION
from ...schemas.recall import turns
from ...schemas.recall.turns import (
    INSTRUCTION,
    MAX_WORDS,
    QUESTION,
    TIME,
    TURN,
    ends_with_question,
    instructs,
    intervals_of,
)
from ...schemas.text import analyzer as text
from ...schemas.text import word_pieces
from ...schemas.text.languages import languages
from ...schemas.text.word_pieces import PASSAGE_WORDS, PASSAGES
from ..folds.words import DATE_TOKENS, WordColumns, batch_tokens, batch_words
from ..projection import SHARED_TURNS, Batch, FoldTransaction

# Computes the columns of a batch's turns: word pieces, flags, and the days they mention.


Ints = npt.NDArray[np.int64]

DAYS_DTYPE: Final = np.dtype("<i4")


def batch_turns(batch: Batch) -> Mapping[str, Any] | None:
    """The columns of the batch's turns, computed once; None if there is no turn among its entries.

    Returns:
        For m turns in order of ``doc``: ``ws``, ``doc`` (uint64), ``flags`` (uint8), ``pieces`` (uint16, all turns'
        word pieces one after the other), ``piece_ends`` (int64, where each turn's end), ``first_passage`` (uint16, how
        many of a turn's pieces belong to its first passage), ``days`` ((d, 2) int32, first and last day of each
        interval), ``day_ends`` (int64).
    """
    if SHARED_TURNS not in batch.shared:
        batch.shared[SHARED_TURNS] = _columns(batch)
    turns: Mapping[str, Any] | None = batch.shared[SHARED_TURNS]
    return turns


def blobs(values: npt.NDArray[Any], ends: Ints) -> list[bytes]:
    """Runs of ``values`` (rows up to each end) as binary values."""
    width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    data = values.tobytes()
    return [data[begin:end] for begin, end in pairwise([0, *(ends * width).tolist()])]


def _columns(batch: Batch) -> Mapping[str, Any] | None:
    entries = batch.entries
    chosen = np.array(
        [at for at, event in enumerate(entries) if info_of(event.entry.entry_type).conversation], np.int64
    )
    if not len(chosen):
        return None
    turns = [entries[at] for at in chosen.tolist()]
    n = len(turns)
    word, counts, distinct = _words(batch, chosen)
    facts = batch_words(batch).in_turns(distinct)
    flags, language = _flags(word, counts, facts)
    pieces, piece_ends, first_passage = _pieces(word, counts, facts)
    known = languages()
    days: list[tuple[int, int]] = []
    day_ends: list[int] = []
    flag_values: list[int] = []
    for event, flag, spoken in zip(turns, flags.tolist(), language.tolist(), strict=True):
        if ends_with_question(event.entry.summary):
            flag |= QUESTION
        if instructs(event.entry.summary):
            flag |= INSTRUCTION
        if flag & TIME:
            days += intervals_of(event.entry.summary, event.ts_ms // DAY_MS, known[spoken])
            flag &= ~TIME
        flag_values.append(flag)
        day_ends.append(len(days))
    return {
        "ws": np.fromiter((hash64(event.entry.workspace_id) for event in turns), np.uint64, n),
        "doc": np.fromiter((event.seq for event in turns), np.uint64, n),
        "flags": np.array(flag_values, np.uint8),
        "pieces": pieces,
        "piece_ends": piece_ends,
        "first_passage": first_passage,
        "days": np.array(days, DAYS_DTYPE).reshape(-1, 2),
        "day_ends": np.array(day_ends, np.int64),
    }


def _words(batch: Batch, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """The first words of each turn: indices into the distinct words, counts per turn, and indices into the batch's words."""
    tokens = batch_tokens(batch)
    starts = (np.cumsum(tokens.counts) - tokens.counts)[chosen] + DATE_TOKENS
    counts = np.minimum(tokens.counts[chosen] - DATE_TOKENS, MAX_WORDS)
    begins = np.cumsum(counts) - counts
    at = np.arange(int(counts.sum())) + np.repeat(starts - begins, counts)
    used, word = np.unique(tokens.word[at], return_inverse=True)
    return word, counts, used


def _flags(word: Ints, counts: Ints, facts: WordColumns) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The flags of each turn in its language, and that language."""
    n, spoken = len(counts), len(languages())
    if not len(word):
        return np.full(n, TURN, np.uint8), np.zeros(n, np.int64)
    turn = np.repeat(np.arange(n), counts)
    # a repeated word counts once as evidence of its language, as in ``language_of``
    seen = np.zeros((n, spoken), np.int64)
    np.add.at(seen, turn, facts.function[word])
    language = seen.argmax(axis=1)
    flags = np.full(n, TURN, np.uint8)
    np.bitwise_or.at(flags, turn, facts.flags[word, language[turn]])
    return flags, language


def _pieces(
    word: Ints, counts: Ints, facts: WordColumns
) -> tuple[npt.NDArray[np.uint16], Ints, npt.NDArray[np.uint16]]:
    turn = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(word)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = place < PASSAGE_WORDS * PASSAGES
    word, turn, place = word[kept], turn[kept], place[kept]
    sizes = facts.sizes[word]
    begins = np.cumsum(sizes) - sizes
    at = np.arange(int(sizes.sum())) + np.repeat(facts.starts[word] - begins, sizes)
    per_turn = np.bincount(turn, weights=sizes, minlength=len(counts)).astype(np.int64)
    early = place < PASSAGE_WORDS
    first = np.bincount(turn[early], weights=sizes[early], minlength=len(counts))
    return facts.pieces[at], np.cumsum(per_turn), first.astype(np.uint16)


class TurnsProjection:
    """Folds turns of conversation."""

    name: ClassVar = TURNS_PROJECTION
    version: ClassVar = 10_000 * text.VERSION + 100 * turns.VERSION + word_pieces.VERSION
    tables: ClassVar[Tables] = (TURNS,)
    folds: ClassVar = (EntryRecorded,)

    def prepare(self, batch: Batch) -> None:
        """Compute the batch's columns ahead of the transaction."""
        if batch.entries:
            batch_turns(batch)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append the batch's turns."""
        columns = batch_turns(batch) if batch.entries else None
        if columns is not None:
            tx.insert(
                TURNS,
                {
                    **{name: columns[name] for name in ("ws", "doc", "flags", "first_passage")},
                    "pieces": blobs(columns["pieces"], columns["piece_ends"]),
                    "days": blobs(columns["days"], columns["day_ends"]),
                },
            )


PROJECTION = TurnsProjection
