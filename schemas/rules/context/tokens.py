"""Counts the tokens of a model's vocabulary in a text: by a tokenizer that is configured, else by an estimate.

Invariant: pure. The estimate of a text is the sum of the estimates of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

Count = Callable[[str], int]
"""Number of tokens of a text; 0 for the empty text."""

_TOKEN: Final = re.compile(
    r"[A-Za-z]{1,7}|[0-9]{1,3}|[ \t]{2,}|[\x00-\x08\x0a-\x1f!-/:-@\[-`{-\x7f]"
    r"|[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]|[\U00010000-\U0010ffff]"
    r"|[^\x00-\x7f\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00010000-\U0010ffff]{1,2}"
)
"""The text of one token; a single blank belongs to the word after it. Against o200k_base: chat +12 %, Markdown +17 %,
JSON +26 %, code +33 %; single chat messages from -20 % on. Four characters a token give JSON -33 %.
"""
_BEYOND: Final = re.compile(r"[\U00010000-\U0010ffff]")
"""Characters such as emoji, which have two tokens."""


def estimate(text: str) -> int:
    """Estimated number of tokens."""
    return sum(map(_of_line, text.splitlines(keepends=True)))


@lru_cache(maxsize=16_384)
def _of_line(line: str) -> int:
    tokens = len(_TOKEN.findall(line))
    return tokens if line.isascii() else tokens + len(_BEYOND.findall(line))


def shortened(text: str, tokens: int, count: Count, mark: str = " …") -> str:
    """The longest beginning of a text that has at most ``tokens`` tokens with the mark; empty if absent."""
    if count(text) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle].rstrip() + mark) <= tokens:
            low = middle
        else:
            high = middle - 1
    kept = text[:low].rstrip()
    return kept + mark if kept else ""
