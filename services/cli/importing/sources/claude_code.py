"""Transcripts of Claude Code: ``~/.claude/projects/<folder>/<session>.jsonl``, a directory of them, or one.

The entries are those that the hooks record (same ids, same content), so a session that was captured is there already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ....client.hook import entry_of, turns_of
from ....client.project import Project, project_without_question
from .found import Notes, Record, sessions, time_of

PROGRAM = "claude-code"
_ASIDE = {
    "isSidechain": "of a side chain",
    "isMeta": "written by the program",
    "isCompactSummary": "summary of a compaction",
    "isApiErrorMessage": "error message of the API",
}
_COMMANDS = ("<command-name>", "<command-message>", "<local-command-stdout>", "<local-command-stderr>", "<bash-")
_REMINDERS = "only system reminders or tool results"


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; side chains, system reminders, tool calls and results, and commands are left out."""
    for file in sessions(path):
        with file.open("rb") as lines:
            for line in lines:
                yield from _entries(line, file.stem, notes)


def _entries(line: bytes, session: str, notes: Notes) -> Iterator[Record]:
    try:
        record = json.loads(line)
    except ValueError:
        if line.strip():
            notes.skip("line that is not JSON")
        return
    if not isinstance(record, dict) or record.get("type") not in ("user", "assistant"):
        return
    if (why := next((why for name, why in _ASIDE.items() if record.get(name)), None)) is not None:
        notes.skip(why)
        return
    turns = list(turns_of(line))
    if not turns:
        notes.skip(_REMINDERS)
    for named, role, text, at in turns:
        if text.startswith(_COMMANDS):
            notes.skip("command of the program")
            continue
        when = time_of(at, notes)
        if when is None:
            notes.untimed += 1
        found = (named, role, text, at if when else None)
        yield entry_of(found, str(record.get("sessionId") or session), _project(str(record.get("cwd") or "")))


@lru_cache(maxsize=256)
def _project(folder: str) -> Project:
    return project_without_question(Path(folder), PROGRAM) if folder else Project("", PROGRAM)
