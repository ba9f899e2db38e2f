"""``hook EVENT``: what a coding agent calls at the events of a session; JSON in, JSON out.

SessionStart injects the block of memory documents, UserPromptSubmit the memories relevant to the prompt. Stop,
PreCompact and SessionEnd record the turns of the transcript since the last capture as entries of a conversation.

Invariant: it fails open: after any error, it exits with 0 within its deadline and describes the error in its output.
Injected memory is never captured. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from ...schemas.core.errors import NotAllowed
from ...schemas.core.user_folders import state_folder
from ...schemas.prompt.assembler import EVERY_MARKER
from .find import Place, ServiceAddress, address_of, located, located_context
from .person import is_typed, person_at
from .project import Project, project_of

DEADLINE_S: Final = 0.3
"""Seconds for all requests of a hook; a person waits for it."""
LATE: Final = "the service did not answer within"
PROMPT_CHARS: Final = 4_000
BLOCK_CHARS: Final = 6_000
RECALL_CHARS: Final = 2_000
TURNS_AT_ONCE: Final = 200
"""Maximum number of turns of one capture; the next capture continues there."""
_TURN_CHARS: Final = 20_000
_SUMMARY_CHARS: Final = 2_000
_STATE: Final = "hooks"
_MARKS: Final = (
    *((f"[{name}]", f"[END {name}]") for name in EVERY_MARKER),
    ("<recalled-memory", "</recalled-memory"),
    ("<system-reminder>", "</system-reminder>"),
)
"""Beginnings and ends of the memory texts that hooks put into sessions."""
_NOT_TURNS: Final = ("isMeta", "isSidechain", "isCompactSummary")
"""Fields that mark lines that are not turns: notes of the program, turns of sub-agents, a model's summary of earlier
turns.
"""
_EVENTS: Final = {"sessionstart", "userpromptsubmit", "stop", "precompact", "sessionend", "beforesubmitprompt"}


class Trouble(Exception):
    """Why the memory could not be used; the text is for a person."""


def run(event: str, program: str, stdin: Any = None, stdout: Any = None, place: Mapping[str, str] | None = None) -> int:
    """Serve one event; returns the exit code, which is 0.

    Args:
        event: The name of the event.
        program: The coding agent.
        stdin: The event; standard input if absent.
        stdout: Where the answer goes; standard output if absent.
        place: The options ``--data-dir`` and ``--journal`` that name a journal.
    """
    out = stdout or sys.stdout
    try:
        answer = _served(event, program, _given(stdin or sys.stdin), place or {})
    except Trouble as error:
        answer = {"systemMessage": f"Crew Journal: memory is not used here: {error}"}
    except TimeoutError:
        answer = {"systemMessage": f"Crew Journal: memory is not used here: {LATE} {DEADLINE_S} s"}
    except Exception as error:  # after any error the session continues without memory
        answer = {"systemMessage": f"Crew Journal: memory is not used here: {type(error).__name__}"}
    out.write(json.dumps(answer) + "\n")
    return 0


def _given(stdin: Any) -> dict[str, Any]:
    try:
        given = json.load(stdin)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise Trouble('stdin is not the JSON object of an event, such as {"prompt": "…"}')
    return given


def _served(event: str, program: str, given: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    kind = event.lower()
    if kind not in _EVENTS:
        raise Trouble(f"no event {event!r}: use SessionStart, UserPromptSubmit, Stop, PreCompact or SessionEnd")
    roots = given.get("workspace_roots")
    folder = Path(given.get("cwd") or (roots[0] if isinstance(roots, list) and roots else Path.cwd()))
    place, address = _service(folder, named)
    project = _project(folder, program)
    if project.workspace is None and place.workspace is not None:
        project = replace(project, workspace=place.workspace)
    service = _Service(address, project, program)
    if kind == "sessionstart":
        return _injected(event, service.block())
    if kind in ("userpromptsubmit", "beforesubmitprompt"):
        return _injected(event, service.recalled(str(given.get("prompt") or "")[:PROMPT_CHARS]))
    return _capture(service, given)


def _service(folder: Path, named: Mapping[str, str]) -> tuple[Place, ServiceAddress]:
    try:
        context = named.get("--journal")
        place = located_context(context) if context else located(None, named.get("--data-dir"), folder)
        return place, address_of(place)
    except Exception as error:  # this package's errors say what to do
        raise Trouble(str(error)) from None


def _project(folder: Path, program: str) -> Project:
    try:
        return project_of(folder, program)
    except NotAllowed as error:
        raise Trouble(str(error)) from None


def _injected(event: str, text: str) -> dict[str, Any]:
    if not text:
        return {}
    if event[:1].islower():  # Cursor names its events in camel case
        return {"additional_context": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


class _Service:
    """Sends requests as the agent of the project, within the deadline."""

    def __init__(self, address: ServiceAddress, project: Project, program: str) -> None:
        person = person_at(address, program)
        self._address = address if person is None else person.at(address)
        self._project = project
        self._person = None if person is None else person.name
        self._until = time.monotonic() + DEADLINE_S

    @property
    def project(self) -> Project:
        """The project that owns the memory."""
        return self._project

    @property
    def person(self) -> str | None:
        """The person whose prompts are submitted; None if the token speaks for no person."""
        return self._person

    def block(self) -> str:
        """The block of memory documents."""
        params = {"agent_id": self._project.agent, "crew_id": self._project.crew, "max_chars": BLOCK_CHARS}
        if self._person is not None:
            params["opener"] = self._person
        return str(self._ask("GET", f"/v1/memory/block?{urlencode(self._in_workspace(params))}").get("text", ""))

    def recalled(self, prompt: str) -> str:
        """The memories relevant to a prompt."""
        if not prompt.strip():
            return ""
        body = {"query": prompt, "mode": "inject", "max_chars": RECALL_CHARS, "agent_id": self._project.agent}
        body |= {"crew_id": self._project.crew, "scope": "crew_shared", "crew_only": True}
        return str(self._ask("POST", "/v1/recall/render", self._in_workspace(body)).get("text", ""))

    def publish(self, entries: list[dict[str, Any]]) -> None:
        """Append entries."""
        self._ask("POST", "/v1/journal", [self._in_workspace(entry) for entry in entries])

    def _in_workspace(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields if self._project.workspace is None else {**fields, "workspace_id": self._project.workspace}

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        parts = urlsplit(self._address.url)
        left = self._until - time.monotonic()
        if left <= 0:
            raise Trouble("no time is left")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=left)
        headers = {"Authorization": f"Bearer {self._address.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        read = json.loads(answer.read() or b"{}")
        if answer.status == http.client.NOT_FOUND:
            return {}  # no entry was ever recorded for this agent or crew
        if answer.status >= http.client.BAD_REQUEST:
            raise Trouble(str(read.get("detail", answer.status)))
        return read if isinstance(read, dict) else {}


def _capture(service: _Service, given: Mapping[str, Any]) -> dict[str, Any]:
    """Append the turns since the last capture. Entry ids come from the transcript, so that no turn is stored twice."""
    path, session = given.get("transcript_path"), str(given.get("session_id") or "")
    if not path or not session:
        return {}
    transcript = Path(str(path))
    mark = _state_file(session)
    try:
        done = int(mark.read_text("ascii"))
    except (OSError, ValueError):
        done = 0
    with transcript.open("rb") as lines:
        lines.seek(done)
        entries = []
        for line in lines:
            if not line.endswith(b"\n"):
                break  # still being written
            entries += [entry_of(turn, session, service.project, service.person) for turn in turns_of(line)]
            done += len(line)
            if len(entries) >= TURNS_AT_ONCE:
                break
    if entries:
        service.publish(entries)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(str(done), "ascii")
    return {}


def _state_file(session: str) -> Path:
    return state_folder() / _STATE / "".join(char if char.isalnum() or char in "-_" else "-" for char in session)[:128]


def turns_of(line: bytes) -> Iterator[tuple[str, str, str, str | None]]:
    """(id, role, text, time) of the turn in a line of a transcript; at most one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(record, dict):
        yield from turns_in(record)


def turns_in(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    """(id, role, text, time) of a line of a transcript; at most one."""
    if any(map(record.get, _NOT_TURNS)):
        return
    payload = record.get("payload")  # Codex wraps messages
    message = record.get("message") if isinstance(record.get("message"), dict) else payload
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        return
    text = without_injected(_text_of(message.get("content")))
    if text:
        named = record.get("uuid") or message.get("id")
        yield str(named or ""), str(message["role"]), text, record.get("timestamp")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (
        part.get("text") for part in content if isinstance(part, dict) and str(part.get("type", "")).endswith("text")
    )
    return "\n".join(part for part in parts if isinstance(part, str))


def without_injected(text: str) -> str:
    """A text without the memory that hooks put into it."""
    for begin, end in _MARKS:
        while (start := text.find(begin)) >= 0:
            stop = text.find(end, start)
            closed = text.find(">", stop) + 1 if end.startswith("</") and stop >= 0 else stop + len(end)
            text = text[:start] + (text[closed:] if stop >= 0 else "")
    return text.strip()


def entry_of(
    turn: tuple[str, str, str, str | None], session: str, project: Project, person: str | None = None
) -> dict[str, Any]:
    """A turn of a session as an entry; its id comes from the transcript.

    Args:
        turn: The turn, from ``turns_of``.
        session: The session's id.
        project: The project that owns the memory.
        person: The person who types the prompts; None if unknown.
    """
    named, role, text, at = turn
    user = person if person is not None and is_typed(text) else "user"
    summary = " ".join(text.split())
    entry: dict[str, Any] = {
        "entry_type": "chat.user_message" if role == "user" else "chat.agent_response",
        "summary": summary if len(summary) <= _SUMMARY_CHARS else summary[: _SUMMARY_CHARS - 1] + "…",
        "agent_id": project.agent,
        "crew_id": project.crew,
        "trace_id": _state_file(session).name[:64],
        "actor_type": "user" if role == "user" else "agent",
        "actor_id": user if role == "user" else project.agent,
    }
    if summary != text:
        entry["payload"] = {"text": text[:_TURN_CHARS]}
    if at:
        entry["ts"] = at
    if named:
        entry["id"] = f"t_{_state_file(named).name}"[:64]
    return entry
