"""Conversations that a person exports: of ChatGPT, of claude.ai, in the format of OpenAI's API, of Slack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .....schemas.core.errors import InvalidFile
from ....client.project import slug
from ...foreign_files import NAME, OBJECT, TEXT, Each, ForeignFile, Shape, files_of, fitting, shown, values_of
from ..key import import_id
from .found import Notes, Record, documents, objects, text_of_parts, turn, values

# The data export of ChatGPT: its ZIP archive, its directory, or ``conversations.json``.
#
# Messages form a tree: an edited prompt and a second answer are branches. ``current_node`` names the end of the branch
# that the user saw last; only this branch is read.


CHATGPT = "chatgpt"
_TEXTS = ("text", "multimodal_text")
_SPEAKERS = ("user", "assistant")
_CHATGPT_MESSAGE = {
    "id": NAME,
    "author": {"role": NAME},
    "content": {"content_type": NAME, "parts": [None]},
    "recipient": NAME,
    "metadata": OBJECT,
}
_CHATGPT_CHAT = {
    "mapping": Each({"parent": NAME, "children": [NAME], "message": _CHATGPT_MESSAGE}),
    "current_node": NAME,
    "conversation_id": NAME,
    "id": NAME,
    "create_time": NAME,
}


def read_chatgpt(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of every conversation; other branches, hidden messages, tool calls and thoughts are left out."""
    for chat in documents(path, "conversations*.json", notes, _CHATGPT_CHAT):
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
            yield turn(CHATGPT, role == "user", text, notes, conversation=conversation, named=named, at=at, title=title)


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


# The data export of claude.ai: its ZIP archive, its directory, or ``conversations.json``.
#
# If messages name their parents, they form a tree, and only the branch that was seen last is read.


CLAUDE = "claude"
_USER = "human"
_CLAUDE_MESSAGES = [{"uuid": NAME, "parent_message_uuid": NAME, "sender": NAME, "text": NAME, "content": [None]}]
_CLAUDE_CHAT: dict[str, Any] = {"uuid": NAME, "current_leaf_message_uuid": NAME, "chat_messages": _CLAUDE_MESSAGES}
_EXPORT: Shape = {"conversations": [_CLAUDE_CHAT], **_CLAUDE_CHAT}


def read_claude(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of every conversation; other branches, thoughts, tool calls and attachments are left out."""
    for document in documents(path, "conversations.json", notes, _EXPORT):
        for chat in objects((document or {}).get("conversations", [document])):
            messages = objects(chat.get("chat_messages"))
            seen = _branch(messages, chat.get("current_leaf_message_uuid"))
            for message in messages:
                if message.get("uuid") not in seen:
                    notes.skip("of a branch that was edited or answered again")
                elif text := _claude_text(message):
                    yield turn(
                        CLAUDE,
                        message.get("sender") == _USER,
                        text,
                        notes,
                        conversation=str(chat.get("uuid") or ""),
                        named=str(message.get("uuid")),
                        at=message.get("created_at"),
                        title=chat.get("name"),
                    )


def _claude_text(message: dict[str, Any]) -> str:
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


# Messages as OpenAI's API takes them: ``{"messages": [{"role", "content"}]}``, one conversation a file or a line.
#
# A plain list of messages is one conversation. A message has neither an id nor a time; its conversation and place name
# it.


OPENAI_MESSAGES = "openai-messages"
_OPENAI_MESSAGE = {"role": NAME, "id": NAME, "name": NAME}
_OPENAI_CHAT: Shape = {"messages": [_OPENAI_MESSAGE], **_OPENAI_MESSAGE}


def read_openai_messages(path: Path, notes: Notes) -> Iterator[Record]:
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
                OPENAI_MESSAGES,
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
            yield {"messages": fitting(value, [_OPENAI_MESSAGE], notes.place)}
            continue
        fitting(value, _OPENAI_CHAT, notes.place)
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
    return import_id(first)[2:18]


# A Slack export: its ZIP archive or directory, with ``users.json`` and a folder for each channel with a file a day.
#
# A reply has the first message of its thread as title. The name and the topic of the channel go with every message.


SLACK = "slack"
MESSAGE = "message.posted"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json\Z")
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")
_LINK = re.compile(r"<(?:#[A-Z0-9]+\||!)?(?:[^<>|]*\|)?([^<>]*)>")
_CHANNELS = ("channels.json", "groups.json")
_USERS: Shape = {
    "id": NAME,
    "name": NAME,
    "real_name": NAME,
    "profile": {"display_name": NAME, "real_name": NAME},
}
_CHANNEL: Shape = {"name": NAME, "topic": {"value": TEXT}, "purpose": {"value": TEXT}}
_POSTED: Shape = dict.fromkeys(("type", "subtype", "text", "user", "username", "ts", "thread_ts"), NAME)
_KEPT = {None, "", "thread_broadcast", "file_share", "me_message", "bot_message"}


def read_slack(path: Path, notes: Notes) -> Iterator[Record]:
    """The messages of every channel; each thread is a separate conversation, and joins and other notices are left out.

    The days are read twice, the first time for the beginnings of threads, so that one day at a time is in memory.
    """
    names, topics = dict[str, str](), dict[str, str]()
    for file in _files(path, Notes()):
        if file.inside == "users.json":
            names = {str(item.get("id")): _name(item) for item in _objects(file, notes, _USERS)}
        elif file.inside in _CHANNELS:
            topics |= {str(item.get("name")): _topic(item) for item in _objects(file, notes, _CHANNEL)}
    first = {
        (file.inside.rpartition("/")[0], str(item["ts"])): _slack_text(item, names)
        for file in _files(path, Notes())
        if _is_day(file.inside)
        for item in _objects(file, notes, _POSTED)
        if item.get("thread_ts") and item.get("thread_ts") == item.get("ts")
    }
    for file in _files(path, notes):
        if not _is_day(file.inside):
            continue
        channel, _, day = file.inside.rpartition("/")
        for message in _objects(file, notes, _POSTED):
            if message.get("type") != "message" or message.get("subtype") not in _KEPT:
                notes.skip("notice of Slack")
                continue
            text = _slack_text(message, names)
            if not text:
                notes.skip("without text")
                continue
            thread = message.get("thread_ts")
            replies = thread and thread != message.get("ts")
            speaker = names.get(str(message.get("user"))) or message.get("username") or str(message.get("user"))
            yield turn(
                SLACK,
                True,
                text,
                notes,
                conversation=f"{channel}-{thread or day[:10]}",
                named=f"{channel}/{message.get('ts')}",
                at=_seconds(message.get("ts")),
                speaker=" ".join(str(speaker).split())[:128],
                title=first.get((channel, str(thread))) if replies else None,
                channel=channel.rpartition("/")[2],
                topic=topics.get(channel.rpartition("/")[2]),
            ) | {"entry_type": MESSAGE, "crew_id": slug(channel)}


def _files(path: Path, notes: Notes) -> Iterator[ForeignFile]:
    """The files of an export, by their paths within it.

    Raises:
        InvalidFile: If it is neither a ZIP archive nor a directory.
    """
    for file in files_of(path, _is_read, notes.leave_out, archives=True):
        if file.label == shown(str(path)):
            raise InvalidFile(f"{path} is neither a ZIP archive nor a directory", hint="name the export of Slack")
        yield file


def _is_read(inside: str) -> bool:
    return inside == "users.json" or inside in _CHANNELS or _is_day(inside)


def _is_day(inside: str) -> bool:
    return "/" in inside and _DAY.match(inside.rpartition("/")[2]) is not None


def _objects(file: ForeignFile, notes: Notes, shape: Shape) -> Iterator[dict[str, Any]]:
    return (item for item in values_of(file, notes.place, shape) if isinstance(item, dict))


def _slack_text(message: dict[str, Any], names: dict[str, str]) -> str:
    """The text of a message, with names instead of ids."""
    text = _LINK.sub(r"\1", _MENTION.sub(lambda m: f"@{names.get(m[1], m[1])}", str(message.get("text") or "")))
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _topic(channel: dict[str, Any]) -> str:
    """Topic and purpose of a channel."""
    values = [(channel.get(name) or {}).get("value") for name in ("topic", "purpose")]
    return ": ".join(dict.fromkeys(value for value in values if isinstance(value, str) and value.strip()))


def _name(user: dict[str, Any]) -> str:
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or user.get("real_name") or profile.get("real_name") or user.get("name"))


def _seconds(ts: Any) -> float | None:
    try:
        return float(ts)
    except (TypeError, ValueError):
        return None
