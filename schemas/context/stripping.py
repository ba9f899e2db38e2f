"""Removes rendered blocks and nudges that a model repeats in its answer, before the answer is recorded.

Otherwise recalled entries would be recorded again as new ones. Invariants: pure and linear; only complete blocks of our
own form are removed (for memories, with the same nonce in both tags).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from ..recall.render import TAG as MEMORY_TAG
from .nudges import KINDS
from .nudges import TAG as NUDGE_TAG

VERSION: Final = 1

NUDGE_CHARS: Final = 600
"""Longest body of a nudge, characters; ours have about 200."""
MAX_LEVELS: Final = 200
"""Number of levels of a payload that are searched; no storable entry is nested deeper."""
EMPTY_SUMMARY: Final = "(nothing but recalled memory)"
"""Replaces a summary that would be empty."""

_NUDGE: Final = re.compile(rf'<{NUDGE_TAG} kind="(?:{"|".join(KINDS)})">[^<]{{0,{NUDGE_CHARS}}}</{NUDGE_TAG}>[ \t]*\n?')
_MEMORY: Final = re.compile(rf'<(/?){MEMORY_TAG} nonce="([0-9a-f]{{16,64}})">')
_MARKS: Final = (f"<{NUDGE_TAG} ", f"<{MEMORY_TAG} ")


def strip_nudges(text: str) -> str:
    """The text without nudges."""
    return _NUDGE.sub("", text) if _MARKS[0] in text else text


def strip_recalled_memory(text: str) -> str:
    """The text without rendered blocks, each from an opening tag to the next closing one with the same nonce."""
    if _MARKS[1] not in text:
        return text
    tags = list(_MEMORY.finditer(text))
    closing: dict[str, list[int]] = {}
    ends: dict[int, int] = {}
    for tag in tags:
        if tag[1]:
            closing.setdefault(tag[2], []).append(tag.start())
            ends[tag.start()] = tag.end()
    kept, at = [], 0
    for tag in tags:
        if tag[1] or tag.start() < at:
            continue
        places = closing.get(tag[2], [])
        place = bisect_left(places, tag.end())
        if place == len(places):
            continue
        kept.append(text[at : tag.start()])
        at = ends[places[place]]
        if text[at : at + 1] == "\n":
            at += 1
    return "".join([*kept, text[at:]])


def strip_injected(text: str) -> str:
    """The text without nudges and without rendered blocks."""
    return strip_nudges(strip_recalled_memory(text)) if "<" in text else text


def strip_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record with ``strip_injected`` applied to the summary and to every string of the payload.

    Returns:
        ``record`` itself if nothing was removed.
    """
    changes: dict[str, Any] = {}
    summary = record.get("summary")
    if isinstance(summary, str) and (left := strip_injected(summary)) != summary:
        changes["summary"] = left.strip() or EMPTY_SUMMARY
    payload = record.get("payload")
    if isinstance(payload, Mapping) and (rest := _stripped(payload)) is not payload:
        changes["payload"] = rest
    return {**record, **changes} if changes else record


def _stripped(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The value, or a changed copy; strings below ``levels`` levels are not changed."""
    if isinstance(value, str):
        left = strip_injected(value)
        return value if left == value else left
    if levels == 0:
        return value
    if isinstance(value, Mapping):
        items = {name: _stripped(part, levels - 1) for name, part in value.items()}
        return value if all(items[name] is part for name, part in value.items()) else items
    if isinstance(value, list):
        parts = [_stripped(part, levels - 1) for part in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    return value
