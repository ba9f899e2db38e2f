"""A Slack export: its ZIP archive or directory, with ``users.json`` and a folder for each channel with a file a day.

A reply has the first message of its thread as title. The name and the topic of the channel go with every message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .....schemas.core.errors import InvalidFile
from ....client.project import slug
from ...foreign_files import ForeignFile, files_of, shown
from ...foreign_json import NAME, TEXT, Shape, values_of
from .found import Notes, Record, turn

SOURCE = "slack"
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


def read(path: Path, notes: Notes) -> Iterator[Record]:
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
        (file.inside.rpartition("/")[0], str(item["ts"])): _text(item, names)
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
            text = _text(message, names)
            if not text:
                notes.skip("without text")
                continue
            thread = message.get("thread_ts")
            replies = thread and thread != message.get("ts")
            speaker = names.get(str(message.get("user"))) or message.get("username") or str(message.get("user"))
            yield turn(
                SOURCE,
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


def _text(message: dict[str, Any], names: dict[str, str]) -> str:
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
