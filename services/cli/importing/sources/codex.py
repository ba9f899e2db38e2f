"""Sessions of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl``, a directory of them, or one.

A message has no id in this format; its session and line name it, because a session's file only grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....client.project import project_without_question
from .found import Notes, Record, parsed, sessions, text_of_parts, turn

PROGRAM = "codex"
_GIVEN = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md instructions")


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """The turns of all sessions; instructions, reasoning, and tool calls with their results are left out."""
    for file in sessions(path):
        session, crew = file.stem, None
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            record = parsed(line, f"{file}, line {number},")
            if not isinstance(record, dict):
                continue
            kind, payload = record.get("type"), record.get("payload")
            if kind == "session_meta" and isinstance(payload, dict):
                session = str(payload.get("id") or session)
                crew = project_without_question(Path(str(payload["cwd"])), PROGRAM).crew if payload.get("cwd") else None
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
