"""Transcripts of coding agents: Claude Code and Codex."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from ....client.project import Project
from ...foreign_files import NAME, OBJECT, lines_of
from .found import Notes, Record, project_named, sessions, text_of_parts, time_of, turn

# Transcripts of Claude Code: ``~/.claude/projects/<folder>/<session>.jsonl``, a directory of them, or one.
#
# The entries are the same as those that the hooks record (same ids and content), so captured sessions are not stored
# twice.


CLAUDE_CODE = "claude-code"
_ASIDE = {
    "isSidechain": "of a side chain",
    "isMeta": "written by the program",
    "isCompactSummary": "summary of a compaction",
    "isApiErrorMessage": "error message of the API",
}
_COMMANDS = ("<command-name>", "<command-message>", "<local-command-stdout>", "<local-command-stderr>", "<bash-")
_REMINDERS = "only system reminders or tool results"
_CLAUDE_CODE_LINE = {"type": NAME, "message": OBJECT, "sessionId": NAME, "cwd": NAME, "uuid": NAME}


def read_claude_code(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; side chains, system reminders, tool calls and results, and commands are left out."""
    torn = partial(notes.skip, "line that is not JSON")
    for file in sessions(path, notes):
        for _, record in lines_of(file, notes.place, _CLAUDE_CODE_LINE, torn=torn):
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
    return project_named(folder, CLAUDE_CODE)


# Sessions of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl``, a directory of them, or one.
#
# A message has no id in this format; its session and line name it, because a session's file only grows.


CODEX = "codex"
_GIVEN = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md instructions")
_CODEX_LINE = {"type": NAME, "role": NAME, "payload": {"type": NAME, "role": NAME, "id": NAME, "cwd": NAME}}


def read_codex(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; instructions, reasoning, and tool calls with their results are left out."""
    for file in sessions(path, notes):
        session, crew = PurePosixPath(file.inside).stem, None
        for number, record in lines_of(file, notes.place, _CODEX_LINE):
            if not isinstance(record, dict):
                continue
            kind, payload = record.get("type"), record.get("payload")
            if kind == "session_meta" and isinstance(payload, dict):
                session = str(payload.get("id") or session)
                crew = project_named(str(payload["cwd"]), CODEX).crew if payload.get("cwd") else None
                continue
            message = payload if kind == "response_item" and isinstance(payload, dict) else record
            text = _text(message, notes)
            if text:
                users = message["role"] == "user"
                at, named = record.get("timestamp"), f"{session}#{number}"
                entry = turn(CODEX, users, text, notes, conversation=session, named=named, at=at)
                yield entry | ({"crew_id": crew} if crew else {})


def _text(message: dict[str, Any], notes: Notes) -> str:
    if message.get("type") != "message":
        return ""  # events repeat the messages
    content = message.get("content")
    text = text_of_parts(content if isinstance(content, list) else [content])
    if message.get("role") not in ("user", "assistant") or text.startswith(_GIVEN):
        notes.skip("instructions")
    else:
        return text
    return ""
