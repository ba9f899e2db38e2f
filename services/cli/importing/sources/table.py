"""Which program's format is read by what, and where that program keeps its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from . import chatgpt, claude, claude_code, cloudevents, codex, mcp_memory, mem0, openai_messages, otel, slack
from .found import Reader


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format.

    Attributes:
        read: Its reader.
        usual: Where the program keeps it, below the home directory; None if a person exports it.
    """

    read: Reader
    usual: str | None = None


SOURCES: Final[Mapping[str, ImportFormat]] = {
    "claude-code": ImportFormat(claude_code.read, ".claude/projects"),
    "codex": ImportFormat(codex.read, ".codex/sessions"),
    "chatgpt": ImportFormat(chatgpt.read),
    "claude": ImportFormat(claude.read),
    "openai-messages": ImportFormat(openai_messages.read),
    "mem0": ImportFormat(mem0.read),
    "mcp-memory": ImportFormat(mcp_memory.read),
    "otel": ImportFormat(otel.read),
    "cloudevents": ImportFormat(cloudevents.read),
    "slack": ImportFormat(slack.read),
}
"""By the value of ``--from``."""
