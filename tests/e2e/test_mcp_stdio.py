"""``crew-journal mcp``: a program on stdin and stdout, called by the official SDK's client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from support.running import running_node

from crew_journal.services.data_dir import read_running

COMMAND = [sys.executable, "-m", "crew_journal.services.cli"]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "crew"
    yield folder
    running = read_running(folder)
    if running is not None:
        os.kill(running.pid, signal.SIGTERM)


def program(data_dir: Path, *more: str) -> StdioServerParameters:
    arguments = [*COMMAND[1:], "mcp", "--data-dir", str(data_dir), "--agent", "ada", *more]
    environment = {**os.environ, "CREW_JOURNAL_EMBEDDER": "none", "CREW_JOURNAL_HTTP": "127.0.0.1:0"}
    return StdioServerParameters(command=COMMAND[0], args=arguments, env=environment)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_it_starts_a_node_that_stays_and_survives_its_restart(data_dir: Path, mode: str) -> None:
    async with Client(program(data_dir), mode=cast(Any, mode)) as client:
        assert "remember" in {tool.name for tool in (await client.list_tools()).tools}
        made = await client.call_tool("remember", {"text": "Zoë prefers tea — über alles"})
        assert not made.is_error
        first = read_running(data_dir)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        await anyio.lowlevel.checkpoint()
        found = await client.call_tool("recall", {"query": "what does Zoë prefer?"})
        assert [hit["summary"] for hit in found.structured_content["hits"]] == ["Zoë prefers tea — über alles"]
    second = read_running(data_dir)
    assert second is not None
    assert second.pid != first.pid


async def test_without_a_service_calls_fail_with_the_reason_and_no_tool_is_listed() -> None:
    arguments = [*COMMAND[1:], "mcp", "--url", "http://127.0.0.1:9", "--token", "cj_none"]
    parameters = StdioServerParameters(command=COMMAND[0], args=arguments, env=dict(os.environ))
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "recall", "arguments": {}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines) + "no json\n"
    ended = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [parameters.command, *parameters.args], input=given.encode(), capture_output=True, timeout=240, check=True
        )
    )
    answers = {answer.get("id"): answer for answer in map(json.loads, ended.stdout.splitlines())}
    assert answers[1]["result"]["tools"] == []
    assert answers[2]["result"]["isError"]
    assert "not available" in answers[2]["result"]["content"][0]["text"]
    assert answers[None]["error"]["code"] == -32700


async def test_a_service_that_goes_away_leaves_answers_that_the_sdk_reads(tmp_path: Path) -> None:
    async with running_node(tmp_path / "data") as node:
        arguments = [*COMMAND[1:], "mcp", "--url", node.http_url, "--token", node.owner_token, "--agent", "ada"]
        parameters = StdioServerParameters(command=COMMAND[0], args=arguments)
        client = Client(parameters, mode="2026-07-28")
        await client.__aenter__()
    try:
        called = await client.call_tool("recall", {"query": "anything"})
        assert called.is_error
        assert "not available" in cast(Any, called.content[0]).text
        assert (await client.list_tools()).tools == []
    finally:
        await client.__aexit__(None, None, None)


async def test_the_command_of_the_client_alone_forwards_to_a_service(tmp_path: Path) -> None:
    async with running_node(tmp_path / "data") as node:
        script = "import sys; from crew_journal.services.client.command import main; sys.exit(main())"
        named = ["mcp", "--url", node.http_url, "--token", node.owner_token, "--agent", "ada"]
        async with Client(StdioServerParameters(command=COMMAND[0], args=["-c", script, *named])) as client:
            await client.call_tool("remember", {"text": "Zoë prefers tea"})
            found = await client.call_tool("recall", {"query": "what does Zoë prefer?"})
            assert [hit["summary"] for hit in found.structured_content["hits"]] == ["Zoë prefers tea"]
