"""BERT's uncased vocabulary of word pieces (Apache-2.0, google-research/bert), one a line; its place is its id.

Invariant: exactly the vocabulary that MiniLM's weights were trained with; a test compares it with its tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

SIZE: Final = 30_522
"""Pieces; ids fit into 16 bits."""


@cache
def vocabulary() -> Mapping[str, int]:
    """Piece → id."""
    text = resources.files("crew_journal.schemas").joinpath("word_pieces.txt").read_text("utf-8")
    return {piece: number for number, piece in enumerate(text.splitlines())}
