"""Eight clients of tools at once, over both transports and in both generations, while the node is killed and comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from support.cli import COMMAND, Cli, Up, environment
from support.mcp_client import connected_to

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import free_port

CLIENTS = 8
MODES = ("legacy", "2026-07-28")


@asynccontextmanager
async def client_of(number: int, up: Up, token: str) -> AsyncIterator[Client]:
    """Every second one is a program; of each kind, every second one speaks the older generation."""
    mode, agent = MODES[number // 2 % 2], f"agent-{number}"
    if number % 2:
        command = ["mcp", "--url", up.facts["http"], "--agent", agent]
        parameters = StdioServerParameters(command=COMMAND, args=command, env=environment(CREW_JOURNAL_TOKEN=token))
        async with Client(parameters, mode=cast(Any, mode)) as one:
            yield one
    else:
        async with connected_to(up.facts["http"], token, mode, agent_id=agent) as one:
            yield one


class Talk:
    """One client: what it stored, and which calls failed without an answer.

    The SDK ends a session over HTTP when its connection breaks; it is opened again once the node is back.
    """

    def __init__(self, number: int, calls: int) -> None:
        self._number = number
        self._texts = [f"client {number} says {turn}" for turn in range(calls)]
        self.stored: list[str] = []
        self.failed: list[str] = []

    async def run(self, up: Up, token: str, called: anyio.Semaphore, back: anyio.Event) -> None:
        left = iter(self._texts)
        calling = ""
        while len(self.stored) + len(self.failed) < len(self._texts):
            try:
                async with client_of(self._number, up, token) as client:
                    for calling in left:
                        called.release()
                        await self._call(client, calling)
            except* (httpx2.HTTPError, MCPError):
                self.failed.append(calling)
                await back.wait()

    async def _call(self, client: Client, text: str) -> None:
        result = await client.call_tool("remember", {"text": text})
        if result.is_error:
            assert "The memory is not available" in cast(Any, result.content[0]).text
            self.failed.append(text)
        else:
            self.stored.append(text)


@pytest.mark.parametrize("calls", [25, pytest.param(400, marks=pytest.mark.nightly)])
async def test_every_call_is_answered_or_unavailable_and_nothing_is_stored_twice(tmp_path: Path, calls: int) -> None:
    cli, http = Cli(tmp_path / "data"), f"127.0.0.1:{free_port()}"
    talks = [Talk(number, calls) for number in range(CLIENTS)]
    called, back = anyio.Semaphore(0), anyio.Event()
    with ExitStack() as ends:
        first = ends.enter_context(cli.up(http=http))
        token = first.beside(tmp_path).env["CREW_JOURNAL_TOKEN"].strip()
        async with anyio.create_task_group() as group:
            for talk in talks:
                group.start_soon(talk.run, first, token, called, back)
            for _ in range(CLIENTS * calls // 4):
                await called.acquire()
            await asyncio.to_thread(first.kill)
            second = await asyncio.to_thread(ends.enter_context, cli.up(http=http))
            back.set()
        async with AsyncCrewJournal(second.facts["http"], token) as journal:
            seq = (await journal.remember("the end")).seq
            await journal.count(min_seq=seq)
            found = Counter([entry.summary async for entry in journal.entries(types=["memory.remembered"])])
    for talk in talks:
        assert len(talk.stored) + len(talk.failed) == calls
        assert {found[text] for text in talk.stored} == {1}
    assert set(found.values()) == {1}, "an entry is there twice"
    assert any(talk.failed for talk in talks), "the node was not gone while it was called"
