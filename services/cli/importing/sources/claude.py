"""The data export of claude.ai: its ZIP archive, its directory, or ``conversations.json``.

If messages name their parents, they form a tree, and only the branch that was seen last is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...foreign_json import NAME, Shape
from .found import Notes, Record, documents, objects, text_of_parts, turn

SOURCE = "claude"
_USER = "human"
_MESSAGES = [{"uuid": NAME, "parent_message_uuid": NAME, "sender": NAME, "text": NAME, "content": [None]}]
_CHAT: dict[str, Any] = {"uuid": NAME, "current_leaf_message_uuid": NAME, "chat_messages": _MESSAGES}
_EXPORT: Shape = {"conversations": [_CHAT], **_CHAT}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of every conversation; other branches, thoughts, tool calls and attachments are left out."""
    for document in documents(path, "conversations.json", notes, _EXPORT):
        for chat in objects((document or {}).get("conversations", [document])):
            messages = objects(chat.get("chat_messages"))
            seen = _branch(messages, chat.get("current_leaf_message_uuid"))
            for message in messages:
                if message.get("uuid") not in seen:
                    notes.skip("of a branch that was edited or answered again")
                elif text := _text(message):
                    yield turn(
                        SOURCE,
                        message.get("sender") == _USER,
                        text,
                        notes,
                        conversation=str(chat.get("uuid") or ""),
                        named=str(message.get("uuid")),
                        at=message.get("created_at"),
                        title=chat.get("name"),
                    )


def _text(message: dict[str, Any]) -> str:
    texts = [part for part in objects(message.get("content")) if part.get("type") == "text"]
    return text_of_parts(texts) or str(message.get("text") or "").strip()


def _branch(messages: list[dict[str, Any]], leaf: str | None) -> set[Any]:
    """The ids of the branch that ends at ``leaf``, or at the last message; of all messages if they name no parents."""
    parents = {message.get("uuid"): message.get("parent_message_uuid") for message in messages}
    if not any(parent in parents for parent in parents.values()):
        return set(parents)
    at = leaf if leaf in parents else messages[-1].get("uuid")
    branch: set[Any] = set()
    while at in parents and at not in branch:
        branch.add(at)
        at = parents[at]
    return branch
