"""Which text of an entry becomes its vector, and how long it may be (contract §3).

Invariant: pure; the same entry gives the same text everywhere, so its hash names the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SEPARATOR: Final = " :: "
PAYLOAD_FIELDS: Final = ("question", "reason")
"""Fields of the payload that carry what an escalation or a decision was about, in the order they are appended."""


def embedded_text(summary: str, payload: Mapping[str, object]) -> str:
    """The summary, then the payload's question and reason, each if it is a non-empty string.

    Args:
        summary: The entry's summary.
        payload: The entry's payload; other fields and other types are left out.

    Returns:
        The parts joined by ``" :: "``; not capped.
    """
    parts = [summary]
    for field in PAYLOAD_FIELDS:
        value = payload.get(field)
        if isinstance(value, str) and value:
            parts.append(value)
    return SEPARATOR.join(parts)


def cap_bytes(text: str, limit: int) -> str:
    """The longest start of `text` that is at most `limit` bytes of UTF-8, cut between characters.

    Args:
        text: Any text; a lone surrogate, which UTF-8 cannot carry, becomes a question mark.
        limit: Bytes, at least 0.
    """
    # A character has at least one byte, so nothing beyond `limit` characters can be kept.
    data = text[:limit].encode("utf-8", errors="replace")
    return data[:limit].decode("utf-8", errors="ignore")
