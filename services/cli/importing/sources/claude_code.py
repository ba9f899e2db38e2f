"""Transcripts of Claude Code: ``~/.claude/projects/<folder>/<session>.jsonl``, a directory of them, or one.

The entries are the same as those that the hooks record (same ids and content), so captured sessions are not stored
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from ....client.project import Project
from ...foreign_json import NAME, OBJECT, lines_of
from .found import Notes, Record, project_named, sessions, time_of

PROGRAM = "claude-code"
_ASIDE = {
    "isSidechain": "of a side chain",
    "isMeta": "written by the program",
    "isCompactSummary": "summary of a compaction",
    "isApiErrorMessage": "error message of the API",
}
_COMMANDS = ("<command-name>", "<command-message>", "<local-command-stdout>", "<local-command-stderr>", "<bash-")
_REMINDERS = "only system reminders or tool results"
_LINE = {"type": NAME, "message": OBJECT, "sessionId": NAME, "cwd": NAME, "uuid": NAME}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; side chains, system reminders, tool calls and results, and commands are left out."""
    torn = partial(notes.skip, "line that is not JSON")
    for file in sessions(path, notes):
        for _, record in lines_of(file, notes.place, _LINE, torn=torn):
            yield from _entries(record, PurePosixPath(file.inside).stem, notes)


def _entries(record: Any, session: str, notes: Notes) -> Iterator[Record]:
    from ....client.hook import entry_of, turns_in  # here, because its libraries are slow to import

    if not isinstance(record, dict) or record.get("type") not in ("user", "assistant"):
        return
    if (why := next((why for name, why in _ASIDE.items() if record.get(name)), None)) is not None:
        notes.skip(why)
        return
    turns = list(turns_in(record))
    if not turns:
        notes.skip(_REMINDERS)
    for named, role, text, at in turns:
        if text.startswith(_COMMANDS):
            notes.skip("command of the program")
            continue
        when = time_of(at, notes)
        if when is None:
            notes.untimed += 1
        turn_found = (named, role, text, at if when else None)
        yield entry_of(turn_found, str(record.get("sessionId") or session), _project(str(record.get("cwd") or "")))


@lru_cache(maxsize=256)
def _project(folder: str) -> Project:
    return project_named(folder, PROGRAM)
