"""Messages as OpenAI's API takes them: ``{"messages": [{"role", "content"}]}``, one conversation a file or a line.

A plain list of messages is one conversation. A message has neither an id nor a time; its conversation and place name it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...foreign_json import NAME, Shape, fitting
from .found import Notes, Record, objects, text_of_parts, turn, values

SOURCE = "openai-messages"
_MESSAGE = {"role": NAME, "id": NAME, "name": NAME}
_CHAT: Shape = {"messages": [_MESSAGE], **_MESSAGE}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of every conversation; system messages and tool calls are left out."""
    for number, chat in enumerate(_chats(path, notes), 1):
        messages = objects(chat.get("messages"))
        conversation = str(chat.get("id") or f"{number}-{_digest(messages)}")
        for place, message in enumerate(messages, 1):
            role, content = message.get("role"), message.get("content")
            if role not in ("user", "assistant"):
                notes.skip("system message" if role in ("system", "developer") else "tool result")
                continue
            text = text_of_parts(content if isinstance(content, list) else [content])
            if not text:
                notes.skip("without text")
                continue
            named = str(message.get("id") or f"{conversation}#{place}")
            at = message.get("created_at") or message.get("timestamp")
            speaker = message.get("name") or None
            yield turn(
                SOURCE,
                role == "user",
                text,
                notes,
                conversation=conversation,
                named=named,
                at=at,
                speaker=speaker,
                title=chat.get("title"),
            )


def _chats(path: Path, notes: Notes) -> Iterator[dict[str, Any]]:
    bare = []
    for value in values(path, notes, None):
        if isinstance(value, list):
            yield {"messages": fitting(value, [_MESSAGE], notes.place)}
            continue
        fitting(value, _CHAT, notes.place)
        if not isinstance(value, dict):
            continue
        if "messages" in value:
            yield value
        elif "role" in value:
            bare.append(value)
    if bare:
        yield {"messages": bare}


def _digest(messages: list[dict[str, Any]]) -> str:
    """A digest of the user's first message, which does not change when the conversation continues."""
    first = next((str(message.get("content")) for message in messages if message.get("role") == "user"), "")
    return hashlib.sha256(first.encode("utf-8", "replace")).hexdigest()[:16]
