"""Shared by readers: builds submissions from messages and statements, and counts omitted messages by reason.

Invariant: the same source gives the same submissions, so a repeated import stores nothing twice: an entry's id is
derived from its content, which contains the id or position in the source and nothing that the source may change later.
The title of a conversation, which a person may change, is part of the entry but not of its id.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final

from .....schemas.core.entry import MAX_SUMMARY
from .....schemas.core.errors import InvalidFile
from .....schemas.core.timestamps import format_ts
from .....schemas.models.rules import CONVERSATION, TITLE, TITLE_CHARS
from .....schemas.text.kinds import lexicon
from ....client.project import Project, project_without_question, slug
from ...foreign_files import ForeignFile, Shape, ValuePlace, files_of, values_of
from ..key import import_id

IMPORTED: Final = "memory.imported"
"""Type of a statement that another memory kept."""
MAX_TEXT_BYTES: Final = 128 * 1024
"""Maximum bytes of a text; escapes may double it, and an entry may have 256 KiB."""
_LATEST_S: Final = 100_000_000_000
"""Larger numbers are milliseconds (the year 5138 in seconds)."""
Record = dict[str, Any]


@dataclass(slots=True)
class Notes:
    """Statistics that a reader returns besides its submissions.

    Attributes:
        left_out: Reason → number of messages that are left out.
        untimed: Number of submissions without a time.
        zoneless: Times without a zone, which are read as UTC.
        cut: Texts that are longer than ``MAX_TEXT_BYTES``.
        place: Position of the current value.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    untimed: int = 0
    zoneless: int = 0
    cut: int = 0
    place: ValuePlace = field(default_factory=ValuePlace)

    def skip(self, reason: str) -> None:
        """Count a message that is left out."""
        self.left_out[reason] += 1

    def leave_out(self, _inside: str, reason: str) -> None:
        """Count a file that is left out."""
        self.skip(reason)


Reader = Callable[[Path, Notes], Iterator[Record]]
"""Reads a file or directory; a submission without an id gets one that follows from its content."""


def turn(
    source: str,
    users: bool,
    text: str,
    notes: Notes,
    *,
    conversation: str,
    named: str,
    at: object = None,
    speaker: str | None = None,
    title: object = None,
    **about: object,
) -> Record:
    """A message of a chat as a submission.

    Args:
        source: Name of the format; also the agent, unless the import names another.
        users: Whether the user wrote it.
        text: The text; not blank.
        notes: Counts missing times and truncated texts.
        conversation: Name of the conversation, which becomes the trace.
        named: The id or position of the message in the source.
        at: Its time in any form that :func:`time_of` reads.
        speaker: Name of the actor; ``user``, or the agent, if absent.
        title: Title of the conversation. A turn that is only a greeting, thanks or assent gets no title, so that it is
            not found by the title.
        about: More about the conversation, such as the channel.
    """
    record = _with_text(
        {
            "entry_type": "chat.user_message" if users else "chat.agent_response",
            "agent_id": slug(source),
            **({"trace_id": slug(conversation)} if conversation else {}),
            "actor_type": "user" if users else "agent",
            "actor_id": speaker or ("user" if users else slug(source)),
            "refs": {"imported_from": source, "imported_id": named},
        },
        text,
        notes,
    )
    if lexicon().filler.fullmatch(text.strip()) is None:
        named_by = {name: line for name, value in ({TITLE: title} | about).items() if (line := _title(value))}
        if named_by:
            record["payload"] = record.get("payload", {}) | {CONVERSATION: named_by}
    return timed(record, at, notes)


def _title(value: object) -> str:
    """A title on one line, cut between words; empty if it is not text."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rpartition(" ")[0] + "…"


def without_conversation(record: Mapping[str, Any]) -> Record:
    """A submission without the fields that a person may rename."""
    payload = {name: value for name, value in (record.get("payload") or {}).items() if name != CONVERSATION}
    rest = {name: value for name, value in record.items() if name != "payload"}
    return rest | ({"payload": payload} if payload else {})


def statement(
    source: str, text: str, notes: Notes, *, named: str | None = None, at: object = None, **more: Any
) -> Record:
    """A statement of another memory as a submission; values of ``more`` that are not None are added to its payload."""
    refs = {"imported_from": source} | ({"imported_id": named} if named else {})
    record = _with_text({"entry_type": IMPORTED, "agent_id": slug(source), "refs": refs}, text, notes)
    payload = record.get("payload", {}) | {name: value for name, value in more.items() if value is not None}
    return timed(record | ({"payload": payload} if payload else {}), at, notes)


def _with_text(record: Record, text: str, notes: Notes) -> Record:
    line = " ".join(text.split())
    record["summary"] = line if len(line) <= MAX_SUMMARY else line[: MAX_SUMMARY - 1] + "…"
    if record["summary"] != text:
        kept = text.encode("utf-8", "replace")
        if len(kept) > MAX_TEXT_BYTES:
            notes.cut += 1
        record["payload"] = {"text": kept[:MAX_TEXT_BYTES].decode("utf-8", "ignore")}
    return record


def timed(record: Record, at: object, notes: Notes) -> Record:
    """The record with its time; without one, and counted, if ``at`` is not a time."""
    when = time_of(at, notes)
    if when is None:
        notes.untimed += 1
        return record
    return record | {"ts": when}


def time_of(at: object, notes: Notes) -> str | None:
    """A time in the format of entries, from seconds or milliseconds since 1970, or from ISO 8601; None if it is neither."""
    try:
        if isinstance(at, (int, float)) and not isinstance(at, bool) and at > 0:
            return format_ts(datetime.fromtimestamp(at / 1_000 if at > _LATEST_S else at, UTC))
        if isinstance(at, str) and at:
            when = datetime.fromisoformat(at)
            if when.tzinfo is None:
                notes.zoneless += 1
                when = when.replace(tzinfo=UTC)
            return format_ts(when)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def content_id(record: Mapping[str, Any]) -> str:
    """The id of a submission without an id, from its content, without the fields that a person may rename."""
    return import_id(json.dumps(without_conversation(record), sort_keys=True, ensure_ascii=False))


def text_of_parts(parts: Iterable[Any]) -> str:
    """The text of a message's content: strings, and objects of type text with a ``text``."""
    texts = (part if isinstance(part, str) else part.get("text") if _is_text(part) else None for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip()).strip()


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and str(part.get("type", "text")).endswith("text")


def documents(path: Path, name: str, notes: Notes, shape: Shape) -> Iterator[Any]:
    """The members of every document whose name matches ``name``, of a file, a directory or a ZIP archive.

    A single file may have any name.

    Raises:
        InvalidFile: If there is no file, or one is malformed.
    """
    none = True
    for file in files_of(path, lambda inside: PurePosixPath(inside).match(name), notes.leave_out, archives=True):
        none = False
        yield from values_of(file, notes.place, shape)
    if none:
        raise InvalidFile(f"{path} holds no {name}", hint="name the export, or one of its files")


def values(path: Path, notes: Notes, shape: Shape) -> Iterator[Any]:
    """The values of a file: the members of a JSON array, a single JSON value, or those of each line (JSONL).

    Raises:
        InvalidFile: If it is not a regular file, or malformed.
    """
    if path.is_dir():
        raise InvalidFile(f"{path} is a directory", hint="name a file in it")
    for file in files_of(path, lambda _inside: True, notes.leave_out):
        yield from values_of(file, notes.place, shape)


def sessions(path: Path, notes: Notes) -> Iterator[ForeignFile]:
    """The JSONL files of a directory, or the one file."""
    return files_of(path, lambda inside: inside.endswith(".jsonl"), notes.leave_out)


def project_named(folder: str, program: str) -> Project:
    """The project of a folder that a file names; it need not be the name of one."""
    try:
        return project_without_question(Path(folder), program) if folder else Project("", program)
    except (OSError, ValueError):  # too long, or with invalid characters
        return Project(slug(folder.rpartition("/")[2]), program)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
