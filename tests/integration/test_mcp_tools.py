"""Every tool of every toolset, called by the official SDK's client over both transports in both generations.

The calls are made from the toolsets (``support.tool_calls``), so that a new tool is covered without a new test.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from support.cli import environment
from support.mcp_client import connected
from support.stack import Stack
from support.tool_calls import Place, bad, foreign, furnished, good, oversized

from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.toolsets import TOOLSETS, Tool

MODES = ("legacy", "2026-07-28")
ANSWER_CHARS = 20_000
"""More would be an argument that is sent back."""
MARKS = ("zirconium", "palladium")
AS_ADA = {"agent_id": "ada", "crew_id": "red", "role": "lead"}
COMBINATIONS = [
    *(pytest.param("http", "2026-07-28", True, name) for name in TOOLSETS),
    pytest.param("stdio", "legacy", False, "core"),
    *(
        pytest.param(*how, True, name, marks=pytest.mark.nightly)
        for how in (("http", "legacy"), ("stdio", "legacy"), ("stdio", "2026-07-28"))
        for name in TOOLSETS
    ),
]
"""Transport, generation of the protocol, whether wrong arguments are sent, too, and the toolset."""


@asynccontextmanager
async def client_of(stack: Stack, token: str, transport: str, mode: str, toolset: str) -> AsyncIterator[Client]:
    """A client that is Ada, who leads her crew; for the operator's tools it is an administrator."""
    who = {} if toolset == "operator" else AS_ADA
    if transport == "http":
        async with connected(stack, token, mode, tools=toolset, **who) as client:
            yield client
        return
    named = ["--agent", "ada", "--crew", "red", "--lead"] if who else []
    command = ["-m", "crew_journal.services.cli", "mcp", "--url", stack.url, "--tools", toolset, *named]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=environment(CREW_JOURNAL_TOKEN=token))
    async with Client(parameters, mode=cast(Any, mode)) as client:
        yield client


@pytest.fixture
async def places(stack: Stack, request: pytest.FixtureRequest) -> tuple[Place, Place]:
    """The caller's workspace and one of somebody else."""
    name = f"{abs(hash(request.node.name)):x}"
    return await furnished(stack, f"a{name}", MARKS[0]), await furnished(stack, f"b{name}", MARKS[1])


class Calls:
    """Calls tools and notes what is not as it should be."""

    def __init__(self, client: Client, toolset: str, other: str) -> None:
        self._client = client
        self._tools = TOOLSETS[toolset]
        self._toolset = toolset
        self._other = other
        self.wrong: list[str] = []

    async def good(self, mine: Place) -> None:
        for tool in self._tools:
            text = await self._call(tool, "good", good(self._toolset, tool, mine), error=False)
            assert text

    async def bad(self, mine: Place) -> None:
        for tool in self._tools:
            for what, arguments in bad(self._toolset, tool, mine):
                await self._call(tool, what, arguments, error=True)

    async def oversized(self, mine: Place) -> None:
        for tool in self._tools:
            for what, arguments, needed in oversized(self._toolset, tool, mine):
                text = await self._call(tool, what, arguments, error=True if needed else None)
                self._note(len(text) > ANSWER_CHARS, tool, what, f"answers {len(text)} characters")

    async def foreign(self, mine: Place, other: Place) -> None:
        for tool in self._tools:
            for what, theirs, unknown in foreign(self._toolset, tool, mine, other):
                said = [await self._call(tool, what, arguments) for arguments in (theirs, unknown)]
                name = next(name for name in theirs if theirs[name] != unknown[name])
                same = said[0].replace(theirs[name], "") == said[1].replace(unknown[name], "")
                self._note(not same, tool, what, f"differs from what does not exist: {said}")

    async def _call(self, tool: Tool, what: str, arguments: dict[str, Any], *, error: bool | None = None) -> str:
        result = await self._client.call_tool(tool.name, arguments)
        text = "".join(part.text for part in result.content)  # type: ignore[union-attr]
        structured = result.structured_content or {}
        self._note(self._other in f"{text} {structured}", tool, what, f"shows the other workspace: {text}")
        self._note(error not in (None, result.is_error), tool, what, f"is_error is {result.is_error}: {text}")
        mended = structured.get("fix") or structured.get("error") == "FileRefused"  # its message is the fix
        self._note(bool(result.is_error) and not mended, tool, what, f"names no fix: {text}")
        return text

    def _note(self, wrong: bool, tool: Tool, what: str, why: str) -> None:
        if wrong:
            self.wrong.append(f"{tool.name}, {what}: {why[:400]}")


@pytest.mark.parametrize(("transport", "mode", "wrong_too", "toolset"), COMBINATIONS)
async def test_every_tool_answers_good_calls_and_says_how_to_mend_bad_ones(
    stack: Stack,
    places: tuple[Place, Place],
    transport: str,
    mode: str,
    wrong_too: bool,
    toolset: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crew_journal.services.recall.receipts.ARRIVAL_S", 0.5)  # a young receipt is waited for
    mine, other = places
    token = (await stack.token(Role.ADMIN, mine.workspace)).plaintext
    async with stack.client() as owner:
        before = (await owner.count(workspace_id=other.workspace)).count
    async with client_of(stack, token, transport, mode, toolset) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == {tool.name for tool in TOOLSETS[toolset]}
        calls = Calls(client, toolset, other.mark)
        await calls.good(mine)
        if wrong_too:
            await calls.bad(mine)
            await calls.oversized(mine)
        await calls.foreign(mine, other)
    assert not calls.wrong, "\n".join(calls.wrong)
    async with stack.client() as owner:
        assert (await owner.count(workspace_id=other.workspace)).count == before
