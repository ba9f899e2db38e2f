"""``conversation_turns``: features of each turn of a conversation, for conversational recipes.

Invariant: one row for every entry of a conversation type, a function of the entry alone; no weights and no tokenizer
are needed, so a node without a model folds the same rows.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.events.envelope import EntryRecorded
from ...schemas.rules import text, turns, word_pieces
from ...schemas.views.journal import TURNS, TURNS_PROJECTION
from ...schemas.views.table import Tables
from ..folds.turn_columns import batch_turns, blobs
from ..projection import Batch, FoldTransaction


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
