"""The part of a chunk that is shown with a hit.

Invariant: a snippet has at most the characters asked for, and three dots more where text was left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....schemas.rules.text import Analyzer, tokens_of

DOTS: Final = "..."


def snippet_of(text: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The lines around the one that says most of the query; the whole text if it is short.

    Args:
        text: Text of the chunk.
        weights: Term → its weight in the query.
        analyzer: Turns lines into terms.
        chars: Most characters, dots aside.
    """
    if len(text) <= chars:
        return text
    lines = text.split("\n")
    worth = [sum(weights.get(term, 0.0) for term in set(analyzer.terms(line))) for line in lines]
    first = last = max(range(len(lines)), key=lambda at: (worth[at], -at))
    size = len(lines[first])
    if size > chars:
        return _cut(lines[first], weights, analyzer, chars) + DOTS
    while True:
        below = last + 1 < len(lines) and size + 1 + len(lines[last + 1]) <= chars
        above = first > 0 and size + 1 + len(lines[first - 1]) <= chars
        if not below and not above:
            break
        if below and (not above or worth[last + 1] >= worth[first - 1]):
            last += 1
            size += 1 + len(lines[last])
        else:
            first -= 1
            size += 1 + len(lines[first])
    return "\n".join(lines[first : last + 1]) + DOTS


def _cut(line: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The part of a long line that holds most of the query, beginning at a word."""
    words = line.split(" ")
    begins = [0]
    for word in words:
        begins.append(begins[-1] + len(word) + 1)
    places = [
        begins[at]
        for at, word in enumerate(words)
        if any(key in weights for key in analyzer.keys_of(tokens_of(word)) if key)
    ]
    if not places:
        return line[:chars]
    best = max(places, key=lambda begin: (sum(begin <= other < begin + chars for other in places), -begin))
    latest = len(line) - chars
    start = min((begin for begin in begins if min(best, latest) - chars // 4 <= begin <= best), default=best)
    return line[start : start + chars]
