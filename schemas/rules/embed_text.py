"""The text of an entry that is embedded, and its maximum length (contract §3).

Invariant: pure; the same entry always gives the same text, so that the text's hash identifies the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .embed_policy import REMEMBERED

SEPARATOR: Final = " :: "
PAYLOAD_FIELDS: Final = ("question", "reason")
"""Fields of the payload that are appended, in this order."""


def embedded_text(summary: str, payload: Mapping[str, object], entry_type: str = "") -> str:
    """The summary, then ``question`` and ``reason`` of the payload if they are non-empty strings.

    Args:
        summary: The entry's summary.
        payload: The entry's payload; other fields and other types are left out.
        entry_type: The entry's type. A remembered text is embedded whole, because its summary may be cut.

    Returns:
        The parts joined by ``" :: "``; not capped.
    """
    whole = payload.get("text") if entry_type == REMEMBERED else None
    parts = [whole if isinstance(whole, str) and whole else summary]
    for field in PAYLOAD_FIELDS:
        value = payload.get(field)
        if isinstance(value, str) and value:
            parts.append(value)
    return SEPARATOR.join(parts)


def cap_bytes(text: str, limit: int) -> str:
    """The longest prefix of `text` with at most `limit` bytes of UTF-8, cut between characters.

    Args:
        text: Any text; a lone surrogate becomes a question mark.
        limit: Bytes, at least 0.
    """
    # A character has at least one byte, so nothing beyond `limit` characters can be kept.
    data = text[:limit].encode("utf-8", errors="replace")
    return data[:limit].decode("utf-8", errors="ignore")
