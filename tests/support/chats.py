"""Conversations written as each program writes them, for imports; the shapes are those of ``tests/data/imports``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

CWD = "/home/maria/shop"


class Message(NamedTuple):
    """A message: when it was sent, whether by the person, and its text."""

    at: datetime
    users: bool
    text: str

    @property
    def role(self) -> str:
        return "user" if self.users else "assistant"


Conversations = dict[str, list[Message]]
"""Id → messages in their order."""


def _lines(path: Path, records: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def claude_code(chats: Conversations, path: Path) -> None:
    for name, messages in chats.items():
        records = [
            {
                "type": message.role,
                "sessionId": name,
                "cwd": CWD,
                "isSidechain": False,
                "uuid": f"{name}-{n}",
                "timestamp": message.at.isoformat(),
                "message": {"role": message.role, "content": [{"type": "text", "text": message.text}]},
            }
            for n, message in enumerate(messages)
        ]
        _lines(path / "-home-maria-shop" / f"{name}.jsonl", records)


def codex(chats: Conversations, path: Path) -> None:
    for name, messages in chats.items():
        records: list[Any] = [{"type": "session_meta", "payload": {"id": name, "cwd": CWD}}]
        for message in messages:
            part = {"type": "input_text" if message.users else "output_text", "text": message.text}
            payload = {"type": "message", "role": message.role, "content": [part]}
            records.append({"timestamp": message.at.isoformat(), "type": "response_item", "payload": payload})
        _lines(path / "2026" / "11" / "02" / f"rollout-{name}.jsonl", records)


def chatgpt(chats: Conversations, path: Path) -> None:
    found = []
    for name, messages in chats.items():
        ids = ["root", *(f"{name}-{n}" for n in range(len(messages)))]
        after = dict(pairwise(ids))
        mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": [ids[1]]}}
        for before, node, message in zip(ids, ids[1:], messages, strict=False):
            said = {
                "id": node,
                "author": {"role": message.role},
                "create_time": message.at.timestamp(),
                "content": {"content_type": "text", "parts": [message.text]},
                "recipient": "all",
                "metadata": {},
            }
            children = [after[node]] if node in after else []
            mapping[node] = {"id": node, "message": said, "parent": before, "children": children}
        found.append({"title": name, "conversation_id": name, "current_node": ids[-1], "mapping": mapping})
    path.write_text(json.dumps(found), encoding="utf-8")


def claude(chats: Conversations, path: Path) -> None:
    found = []
    for name, messages in chats.items():
        ids = ["00000000-0000-4000-8000-000000000000", *(f"{name}-{n}" for n in range(len(messages)))]
        said = [
            {
                "uuid": uuid,
                "parent_message_uuid": before,
                "sender": "human" if message.users else "assistant",
                "created_at": message.at.isoformat(),
                "text": message.text,
                "content": [{"type": "text", "text": message.text}],
            }
            for before, uuid, message in zip(ids, ids[1:], messages, strict=False)
        ]
        found.append({"uuid": name, "name": name, "chat_messages": said})
    path.write_text(json.dumps(found), encoding="utf-8")


def openai_messages(chats: Conversations, path: Path) -> None:
    _lines(
        path,
        [
            {"messages": [{"role": message.role, "content": message.text} for message in messages]}
            for messages in chats.values()
        ],
    )


def slack(chats: Conversations, path: Path) -> None:
    path.mkdir()
    users = [{"id": "U1", "name": "maria"}, {"id": "U2", "name": "bo"}]
    (path / "users.json").write_text(json.dumps(users), encoding="utf-8")
    for name, messages in chats.items():
        said = [
            {
                "type": "message",
                "user": "U1" if message.users else "U2",
                "text": message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
                "ts": f"{message.at.timestamp():.6f}",
            }
            for message in messages
        ]
        (path / name).mkdir()
        (path / name / f"{messages[0].at:%Y-%m-%d}.json").write_text(json.dumps(said), encoding="utf-8")


def mem0(chats: Conversations, path: Path) -> None:
    found = [
        {
            "id": f"{name}-{n}",
            "memory": message.text,
            "hash": f"{n:032x}",
            "metadata": None,
            "created_at": message.at.isoformat(),
            "updated_at": None,
            "user_id": "maria",
            "agent_id": "assistant",
            "run_id": name,
        }
        for name, messages in chats.items()
        for n, message in enumerate(messages)
    ]
    path.write_text(json.dumps({"results": found}), encoding="utf-8")


def mcp_memory(chats: Conversations, path: Path) -> None:
    """An observation has neither an id nor a time: each is told apart by its entity and text."""
    _lines(
        path,
        [
            {
                "type": "entity",
                "name": name,
                "entityType": "conversation",
                "observations": [f"{message.text} ({n})" for n, message in enumerate(messages)],
            }
            for name, messages in chats.items()
        ],
    )


def otel(chats: Conversations, path: Path) -> None:
    """A conversation is a trace with a span for each message, which failed with the message as its reason."""
    spans = [
        {
            "traceId": hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(),
            "spanId": f"{n:016x}",
            "parentSpanId": "",
            "name": "chat",
            "kind": 3,
            "startTimeUnixNano": str(int(message.at.timestamp()) * 1_000_000_000),
            "endTimeUnixNano": str(int(message.at.timestamp()) * 1_000_000_000 + 250_000_000),
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
            "status": {"code": 2, "message": message.text},
        }
        for name, messages in chats.items()
        for n, message in enumerate(messages)
    ]
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "triage"}}]}
    scopes = [{"scope": {"name": "opentelemetry.instrumentation.openai_v2"}, "spans": spans}]
    path.write_text(json.dumps({"resourceSpans": [{"resource": service, "scopeSpans": scopes}]}), encoding="utf-8")


def cloudevents(chats: Conversations, path: Path) -> None:
    _lines(
        path,
        [
            {
                "specversion": "1.0",
                "type": "com.example.message.sent",
                "source": "/chats",
                "subject": name,
                "id": f"{name}-{n}",
                "time": message.at.isoformat(),
                "datacontenttype": "application/json",
                "data": {"message": message.text},
            }
            for name, messages in chats.items()
            for n, message in enumerate(messages)
        ],
    )


PROGRAMS = ("claude-code", "codex", "chatgpt", "claude", "openai-messages", "slack")
"""Formats of conversations."""
WRITERS: dict[str, Callable[[Conversations, Path], None]] = {
    "claude-code": claude_code,
    "codex": codex,
    "chatgpt": chatgpt,
    "claude": claude,
    "openai-messages": openai_messages,
    "slack": slack,
    "mem0": mem0,
    "mcp-memory": mcp_memory,
    "otel": otel,
    "cloudevents": cloudevents,
}
"""By the value of ``--from``: writes the conversations to a path."""
