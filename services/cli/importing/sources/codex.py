"""Sessions of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl``, a directory of them, or one.

A message has no id in this format; its session and line name it, because a session's file only grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ...foreign_json import NAME, lines_of
from .found import Notes, Record, project_named, sessions, text_of_parts, turn

PROGRAM = "codex"
_GIVEN = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md instructions")
_LINE = {"type": NAME, "role": NAME, "payload": {"type": NAME, "role": NAME, "id": NAME, "cwd": NAME}}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; instructions, reasoning, and tool calls with their results are left out."""
    for file in sessions(path, notes):
        session, crew = PurePosixPath(file.inside).stem, None
        for number, record in lines_of(file, notes.place, _LINE):
            if not isinstance(record, dict):
                continue
            kind, payload = record.get("type"), record.get("payload")
            if kind == "session_meta" and isinstance(payload, dict):
                session = str(payload.get("id") or session)
                crew = project_named(str(payload["cwd"]), PROGRAM).crew if payload.get("cwd") else None
                continue
            message = payload if kind == "response_item" and isinstance(payload, dict) else record
            text = _text(message, notes)
            if text:
                users = message["role"] == "user"
                at, named = record.get("timestamp"), f"{session}#{number}"
                entry = turn(PROGRAM, users, text, notes, conversation=session, named=named, at=at)
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
