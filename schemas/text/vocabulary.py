"""BERT's uncased vocabulary of word pieces (Apache-2.0, google-research/bert); a piece's line number is its id.

Invariant: exactly the vocabulary of MiniLM; a test compares it with the model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

SIZE: Final = 30_522
"""Number of pieces; ids fit into 16 bits."""


@cache
def vocabulary() -> Mapping[str, int]:
    """The id of each piece."""
    text = resources.files(__package__).joinpath("word_pieces.txt").read_text("utf-8")
    return {piece: number for number, piece in enumerate(text.splitlines())}
