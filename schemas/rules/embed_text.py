"""The text of an entry that is embedded, and its maximum length (contract §3).

A turn of an imported conversation is embedded with the conversation's title before it: "It takes six hours." under
"Trains to Lyon" is found by a question about trains.

Invariant: pure; the same entry always gives the same text, so that the text's hash identifies the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .embed_policy import REMEMBERED, is_speech

SEPARATOR: Final = " :: "
PAYLOAD_FIELDS: Final = ("question", "reason")
"""Fields of the payload that are appended, in this order."""
CONVERSATION: Final = "conversation"
"""Field of a turn's payload: an object about the conversation; ``title`` is the name that people gave it, or its first
message in a thread. An import of Slack adds ``channel`` and ``topic``, which only the search by words reads."""
TITLE: Final = "title"
TITLE_CHARS: Final = 200
"""Characters of a title: longer than the titles that programs give, and less than a tenth of a turn's longest summary."""


def embedded_text(summary: str, payload: Mapping[str, object], entry_type: str = "") -> str:
    """The summary, then ``question`` and ``reason`` of the payload if they are non-empty strings.

    The title of its conversation, if there is one, precedes the summary of speech.

    Args:
        summary: The entry's summary.
        payload: The entry's payload; other fields and other types are left out.
        entry_type: The entry's type. A remembered text is embedded whole, because its summary may be cut.

    Returns:
        The parts joined by ``" :: "``; not capped.
    """
    full_text = payload.get("text") if entry_type == REMEMBERED else None
    parts = [full_text if isinstance(full_text, str) and full_text else summary]
    if is_speech(entry_type) and (title := title_of(payload)):
        parts.insert(0, title)
    for field in PAYLOAD_FIELDS:
        value = payload.get(field)
        if isinstance(value, str) and value:
            parts.append(value)
    return SEPARATOR.join(parts)


def title_of(payload: Mapping[str, object]) -> str:
    """The title of the conversation of a turn, empty if it has none."""
    about = payload.get(CONVERSATION)
    title = about.get(TITLE) if isinstance(about, Mapping) else None
    return title[:TITLE_CHARS] if isinstance(title, str) else ""


def cap_bytes(text: str, limit: int) -> str:
    """The longest prefix of `text` with at most `limit` bytes of UTF-8, cut between characters.

    Args:
        text: Any text; a lone surrogate becomes a question mark.
        limit: Bytes, at least 0.
    """
    # A character has at least one byte, so nothing beyond `limit` characters can be kept.
    data = text[:limit].encode("utf-8", errors="replace")
    return data[:limit].decode("utf-8", errors="ignore")
