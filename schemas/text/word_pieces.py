"""Splits words into word pieces of BERT's uncased vocabulary, for the static vectors of late interaction.

The model's tokenizer is not used, because a fold must give the same rows on a node without weights
(docs/adr/0008-turns.md). For words of letters and digits the result is the same (a test compares them). Invariant:
pure; a change is a new ``VERSION`` and a rebuild of the view of turns.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from .analyzer import STOP_WORDS
from .vocabulary import vocabulary

VERSION: Final = 2
MAX_WORD: Final = 100
"""Maximum length of a word in characters; BERT treats longer words as unknown."""
PASSAGE_WORDS: Final = 165
"""Number of words of a passage; two passages cover a summary of 2,000 characters. Recall@10 (@5) on messages of 157 words on
average, joined from development turns: two passages of 110 words .854 (.798), three .877 (.819), two of 165 .888
(.831).
"""
PASSAGES: Final = 2
_PREFIX: Final = "##"


def pieces_of(word: str) -> tuple[int, ...]:
    """Ids of the pieces of a folded word; empty for a stop word or a word that the vocabulary cannot express."""
    return () if len(word) > MAX_WORD else _pieces(word)


@lru_cache(maxsize=65_536)  # short words only: a word may be as long as an entry
def _pieces(word: str) -> tuple[int, ...]:
    if word in STOP_WORDS:
        return ()
    if word.isascii():
        return _cut(word)
    bare = "".join(ch for ch in unicodedata.normalize("NFD", word) if unicodedata.category(ch) != "Mn")
    pieces: list[int] = []
    for part in _apart(bare):
        pieces += _cut(part)
    return tuple(pieces)


def _cut(word: str) -> tuple[int, ...]:
    """Split greedily, longest match first (Wu et al., 2016)."""
    known = vocabulary()
    pieces: list[int] = []
    start = 0
    while start < len(word):
        prefix = _PREFIX if start else ""
        for end in range(len(word), start, -1):
            piece = known.get(prefix + word[start:end])
            if piece is not None:
                pieces.append(piece)
                start = end
                break
        else:
            return ()
    return tuple(pieces)


def _apart(word: str) -> list[str]:
    """The word with its ideographs separated, as BERT does."""
    parts: list[str] = []
    run = ""
    for ch in word:
        if "\u3400" <= ch <= "\u9fff" or "\uf900" <= ch <= "\ufaff":
            parts += [run, ch]
            run = ""
        else:
            run += ch
    return [part for part in (*parts, run) if part]
