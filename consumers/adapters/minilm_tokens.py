"""MiniLM's tokens as bits: what late interaction compares, 48 bytes a token instead of 1,536.

A token's bits say of each dimension whether its last hidden state lies above the mean of raw token vectors over chat
text. Stop words and punctuation are left out, continuation pieces kept.

Invariant: bits of two texts are comparable exactly if their ``quantiser`` is the same; a changed mean, stop list or
passage is a new ``QUANTISER``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.ports import TokenBits
from ...schemas.rules.text import STOP_WORDS
from ...schemas.vocabulary import vocabulary
from .minilm_encoder import DIM
from .minilm_math import Floats

QUANTISER: Final = 1
PASSAGE_PIECES: Final = 126
"""Word pieces of the first passage; the rest of the 256 that the model reads is the second. Long entries (eight turns
joined, recall@10): cut here .867, at the last sentence end before .868, passages read in passes of their own .865."""
NO_TOKENS: Final = TokenBits(QUANTISER, b"", DIM, 0)
_MEAN_FILE: Final = "minilm_mean.json"
"""Mean of the 1,401 token vectors of bench/data/everyday_chat.txt. Development conversations, recall@10 (@5): this .856
(.791), their own mean .858 (.783), the mean of the sample journal's technical chat .857 (.792)."""
_CONTINUED: Final = "##"


@cache
def mean() -> Floats:
    """(384,) float32."""
    text = resources.files("crew_journal.consumers.adapters").joinpath(_MEAN_FILE).read_text("utf-8")
    return np.array(json.loads(text), np.float32)


@cache
def counting() -> npt.NDArray[np.bool_]:
    """(pieces,) bool: which word pieces count, i.e. are neither stop words nor punctuation."""
    return np.array(
        [
            piece.startswith(_CONTINUED)
            or (piece not in STOP_WORDS and not piece.startswith("[") and any(map(str.isalnum, piece)))
            for piece in vocabulary()
        ]
    )


def token_bits(hidden: Floats, pieces: Sequence[Sequence[int]]) -> list[TokenBits]:
    """The bits of each text's tokens.

    Args:
        hidden: (word pieces, 384) last hidden states, one text after the other.
        pieces: Ids of each text's word pieces, [CLS] and [SEP] included.
    """
    counts = counting()
    middle = mean()
    found = []
    end = 0
    for ids in pieces:
        start, end = end, end + len(ids)
        kept = counts[np.asarray(ids)]
        bits = np.packbits(hidden[start:end][kept] > middle, axis=1)
        early = int(np.count_nonzero(kept[: PASSAGE_PIECES + 1]))  # [CLS] stands before the passage
        first = early or len(bits)  # a first passage that says nothing is none
        found.append(TokenBits(QUANTISER, bits.tobytes(), DIM, first))
    return found
