"""Where Ollama is looked for in a container."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from crew_journal.consumers.adapters import choose
from crew_journal.consumers.adapters.choose import ollama_host_of
from crew_journal.schemas.settings import OLLAMA_DEFAULT_HOST


async def test_the_machine_around_a_container_is_asked_only_where_nothing_else_is_set_or_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1: the adapter follows OLLAMA_HOST and falls back to the machine around the container."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nothing = f"http://127.0.0.1:{closed.getsockname()[1]}"
    mark = tmp_path / "mark"
    mark.touch()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    around = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    monkeypatch.setattr(choose, "OLLAMA_DEFAULT_HOST", nothing)
    assert await ollama_host_of(nothing, fallback=around, marks=[mark]) == around
    assert await ollama_host_of(nothing, fallback=around, marks=[tmp_path / "absent"]) == nothing
    assert await ollama_host_of("http://127.0.0.1:1", fallback=around, marks=[mark]) == "http://127.0.0.1:1"
    monkeypatch.setattr(choose, "OLLAMA_DEFAULT_HOST", around)
    assert await ollama_host_of(around, fallback=nothing, marks=[mark]) == around
    server.close()
    await server.wait_closed()
    assert await ollama_host_of(around, fallback=nothing, marks=[mark]) == around
    assert OLLAMA_DEFAULT_HOST == "http://127.0.0.1:11434"
