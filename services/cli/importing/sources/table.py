"""Which program's format is read by what, and where that program keeps its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from . import chatgpt, claude, claude_code, cloudevents, codex, mcp_memory, mem0, openai_messages, otel, slack
from .found import Reader


@dataclass(frozen=True, slots=True)
class Source:
    """A format.

    Attributes:
        read: Its reader.
        usual: Where the program keeps it, below the home directory; None if a person exports it.
    """

    read: Reader
    usual: str | None = None


SOURCES: Final[Mapping[str, Source]] = {
    "claude-code": Source(claude_code.read, ".claude/projects"),
    "codex": Source(codex.read, ".codex/sessions"),
    "chatgpt": Source(chatgpt.read),
    "claude": Source(claude.read),
    "openai-messages": Source(openai_messages.read),
    "mem0": Source(mem0.read),
    "mcp-memory": Source(mcp_memory.read),
    "otel": Source(otel.read),
    "cloudevents": Source(cloudevents.read),
    "slack": Source(slack.read),
}
"""By the value of ``--from``."""
