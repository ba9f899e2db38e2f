"""Converts MiniLM's hidden states to bits for late interaction: 48 bytes per token instead of 1,536.

A bit is set if the last hidden state is above the mean of token vectors over chat text. Stop words and punctuation are
left out. Invariant: bits are comparable only if their ``quantiser`` is the same; a changed mean, stop list or passage
is a new ``QUANTISER``.
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
"""Word pieces of the first passage; the others of the 256 that the model reads are the second. Recall@10 on entries of
eight joined turns is .867; with a cut at the end of a sentence .868, with separate passes .865.
"""
NO_TOKENS: Final = TokenBits(QUANTISER, b"", DIM, 0)
_MEAN_FILE: Final = "minilm_mean.json"
"""Mean of the 1,401 token vectors of bench/data/everyday_chat.txt. The means of other chats give the same recall@10
(.856 to .858).
"""
_CONTINUED: Final = "##"


@cache
def mean() -> Floats:
    """(384,) float32."""
    text = resources.files("crew_journal.consumers.adapters").joinpath(_MEAN_FILE).read_text("utf-8")
    return np.array(json.loads(text), np.float32)


@cache
def counting() -> npt.NDArray[np.bool_]:
    """(pieces,) bool: which word pieces are neither stop words nor punctuation."""
    return np.array(
        [
            piece.startswith(_CONTINUED)
            or (piece not in STOP_WORDS and not piece.startswith("[") and any(map(str.isalnum, piece)))
            for piece in vocabulary()
        ]
    )


def token_bits(hidden: Floats, pieces: Sequence[Sequence[int]]) -> list[TokenBits]:
    """The token bits of each text.

    Args:
        hidden: (word pieces, 384) last hidden states, text after text.
        pieces: Ids of each text's word pieces, [CLS] and [SEP] included.
    """
    counts = counting()
    middle = mean()
    bits_per_text = []
    end = 0
    for ids in pieces:
        start, end = end, end + len(ids)
        kept = counts[np.asarray(ids)]
        bits = np.packbits(hidden[start:end][kept] > middle, axis=1)
        early = int(np.count_nonzero(kept[: PASSAGE_PIECES + 1]))  # [CLS] precedes the passage
        first = early or len(bits)  # a first passage of stop words only is left out
        bits_per_text.append(TokenBits(QUANTISER, bits.tobytes(), DIM, first))
    return bits_per_text
