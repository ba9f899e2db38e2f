"""The data export of ChatGPT: its ZIP archive, its directory, or ``conversations.json``.

Messages form a tree: an edited prompt and a second answer are branches. ``current_node`` names the end of the branch that
the user saw last; only this branch is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...foreign_json import NAME, OBJECT, Each
from .found import Notes, Record, documents, text_of_parts, turn

SOURCE = "chatgpt"
_TEXTS = ("text", "multimodal_text")
_SPEAKERS = ("user", "assistant")
_MESSAGE = {
    "id": NAME,
    "author": {"role": NAME},
    "content": {"content_type": NAME, "parts": [None]},
    "recipient": NAME,
    "metadata": OBJECT,
}
_CHAT = {
    "mapping": Each({"parent": NAME, "children": [NAME], "message": _MESSAGE}),
    "current_node": NAME,
    "conversation_id": NAME,
    "id": NAME,
    "create_time": NAME,
}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of every conversation; other branches, hidden messages, tool calls and thoughts are left out."""
    for chat in documents(path, "conversations*.json", notes, _CHAT):
        yield from _turns(chat or {}, notes)


def _turns(chat: dict[str, Any], notes: Notes) -> Iterator[Record]:
    nodes = {name: node for name, node in (chat.get("mapping") or {}).items() if isinstance(node, dict)}
    path = _path(nodes, chat.get("current_node"))
    for name in nodes.keys() - set(path):
        if ((nodes[name].get("message") or {}).get("author") or {}).get("role") in _SPEAKERS:
            notes.skip("of a branch that was edited or answered again")
    conversation = str(chat.get("conversation_id") or chat.get("id") or chat.get("create_time") or "")
    for name in path:
        message = nodes[name].get("message") or {}
        role, content = (message.get("author") or {}).get("role"), message.get("content") or {}
        if role not in _SPEAKERS:
            continue
        if message.get("weight") == 0 or (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
            notes.skip("hidden")
        elif content.get("content_type") not in _TEXTS or message.get("recipient", "all") != "all":
            notes.skip("tool call, code or thoughts")
        elif text := text_of_parts(content.get("parts") or ()):
            named, at = str(message.get("id") or name), message.get("create_time")
            title = chat.get("title")
            yield turn(SOURCE, role == "user", text, notes, conversation=conversation, named=named, at=at, title=title)


def _path(nodes: dict[str, dict[str, Any]], current: str | None) -> list[str]:
    """The branch that ends at ``current``; of an old export without it, the newest branch."""
    at = current if current in nodes else next((name for name, node in nodes.items() if not node.get("parent")), None)
    above: set[str | None] = set()
    while current not in nodes and at in nodes and (children := nodes[at].get("children")):
        above.add(at)
        if children[-1] not in nodes or children[-1] in above:
            break
        at = children[-1]
    path: dict[str, None] = {}
    while at in nodes and at not in path:
        path[at] = None
        at = nodes[at].get("parent")
    return list(path)[::-1]
