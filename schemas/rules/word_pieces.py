"""Words → word pieces of BERT's uncased vocabulary, for the static table of late interaction.

Why our own and not the model's tokenizer: a fold must give the same rows on a node that has no weights, and cutting
each distinct word once costs a tenth of cutting every text (docs/adr/0008-turns.md). For words of letters and digits,
which is all that counts here, the pieces are those of the model's tokenizer (a test compares them).

Invariant: pure; a change is a new ``VERSION`` and a rebuild of the view of turns.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from ..vocabulary import vocabulary
from .text import STOP_WORDS

VERSION: Final = 2
MAX_WORD: Final = 100
"""Characters; BERT calls a longer word unknown."""
PASSAGE_WORDS: Final = 165
"""Words of a passage; two hold what a summary's 2,000 characters hold. Development turns joined to messages of 157 words in
the mean, recall@10 (@5): two passages of 110 words .854 (.798), three .877 (.819), two of 165 .888 (.831); of 95 words .884
(.830), the same, .889 (.838); better on each conversation."""
PASSAGES: Final = 2
_PREFIX: Final = "##"


def pieces_of(word: str) -> tuple[int, ...]:
    """Ids of the pieces of a folded word; none for a stop word or a word the vocabulary cannot write."""
    return () if len(word) > MAX_WORD else _pieces(word)


@lru_cache(maxsize=65_536)  # of short words: a word may be as long as an entry
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
    """Greedy, longest match first (Wu et al., 2016)."""
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
    """Ideographs stand alone in BERT's vocabulary."""
    parts: list[str] = []
    run = ""
    for ch in word:
        if "\u3400" <= ch <= "\u9fff" or "\uf900" <= ch <= "\ufaff":
            parts += [run, ch]
            run = ""
        else:
            run += ch
    return [part for part in (*parts, run) if part]
