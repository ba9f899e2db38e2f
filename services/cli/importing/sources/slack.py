"""A Slack export: its ZIP archive or directory, with ``users.json`` and a folder for each channel with a file a day.

A reply has the first message of its thread as title. The name and the topic of the channel go with every message.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ....client.project import slug
from .found import Notes, Record, objects, parsed, turn

SOURCE = "slack"
MESSAGE = "message.posted"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json\Z")
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")
_LINK = re.compile(r"<(?:#[A-Z0-9]+\||!)?(?:[^<>|]*\|)?([^<>]*)>")
_CHANNELS = ("channels.json", "groups.json")
_KEPT = {None, "", "thread_broadcast", "file_share", "me_message", "bot_message"}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The messages of every channel, a thread as a conversation of its own; joins and other notices are left out."""
    files = _files(path)
    names = {str(user.get("id")): _name(user) for user in objects(files.get("users.json"))}
    days = [label for label in sorted(files) if "/" in label and _DAY.match(label.rpartition("/")[2])]
    topics = {str(one.get("name")): _topic(one) for name in _CHANNELS for one in objects(files.get(name))}
    first = {
        (label.rpartition("/")[0], str(one["ts"])): _text(one, names)
        for label in days
        for one in objects(files[label])
        if one.get("thread_ts") and one.get("thread_ts") == one.get("ts")
    }
    for label in days:
        channel, _, day = label.rpartition("/")
        for message in objects(files[label]):
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


def _files(path: Path) -> dict[str, Any]:
    """Path within the export → document."""
    if path.is_dir():
        read = {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*.json")}
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            read = {name: archive.read(name) for name in archive.namelist() if name.endswith(".json")}
    else:
        raise typer.BadParameter(f"{path} is neither a ZIP archive nor a directory", param_hint="FILE")
    known = ("users.json", *_CHANNELS)
    wanted = {name: raw for name, raw in read.items() if name in known or _DAY.search(name)}
    return {name: parsed(raw, f"{path}:{name}") for name, raw in wanted.items()}


def _text(message: dict[str, Any], names: dict[str, str]) -> str:
    """The text of a message, with names instead of ids."""
    text = _LINK.sub(r"\1", _MENTION.sub(lambda m: f"@{names.get(m[1], m[1])}", str(message.get("text") or "")))
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _topic(channel: dict[str, Any]) -> str:
    """Topic and purpose of a channel."""
    said = [(channel.get(name) or {}).get("value") for name in ("topic", "purpose")]
    return ": ".join(dict.fromkeys(one for one in said if isinstance(one, str) and one.strip()))


def _name(user: dict[str, Any]) -> str:
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or user.get("real_name") or profile.get("real_name") or user.get("name"))


def _seconds(ts: Any) -> float | None:
    try:
        return float(ts)
    except (TypeError, ValueError):
        return None
