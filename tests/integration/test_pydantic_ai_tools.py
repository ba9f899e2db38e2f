"""The memory as tools of Pydantic AI: an agent of the real package with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.toolsets import TOOLSETS
from crew_journal.services.client import AsyncCrewJournal

if TYPE_CHECKING:  # pydantic_ai takes a second to import; only the worker that runs these tests imports it
    from pydantic_ai import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo, FunctionModel


@pytest.fixture
async def journal(stack: Stack) -> AsyncIterator[AsyncCrewJournal]:
    token = await stack.token(Role.AGENT, "pydantic-ai", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        yield client


class Script:
    """A model that makes the given calls one after the other, then ends; keeps what it was offered and answered."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self._calls: Iterator[tuple[str, dict[str, Any]]] = iter(calls)
        self.offered: dict[str, Any] = {}
        self.answers: list[Any] = []

    def model(self) -> FunctionModel:
        from pydantic_ai.models.function import FunctionModel

        return FunctionModel(self._next)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        from pydantic_ai import ModelResponse, TextPart, ToolCallPart, ToolReturnPart

        self.offered = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
        self.answers += [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        for name, arguments in self._calls:
            return ModelResponse([ToolCallPart(name, arguments)])
        return ModelResponse([TextPart("done")])


async def run(journal: AsyncCrewJournal, *calls: tuple[str, dict[str, Any]], toolsets: Any = ("core",)) -> Script:
    from pydantic_ai import Agent

    from crew_journal.services.client.adapters.pydantic_ai_tools import memory_toolset

    script = Script(*calls)
    await Agent(script.model(), toolsets=[memory_toolset(journal, toolsets)], retries=2).run("go")
    return script


async def test_an_agent_remembers_and_recalls_its_own_write(journal: AsyncCrewJournal) -> None:
    script = await run(
        journal,
        ("remember", {"text": "The vault opens at nine", "kind": "fact"}),
        ("recall", {"query": "when does the vault open?"}),
    )
    assert set(script.offered) == {tool.name for tool in TOOLSETS["core"]}
    assert set(script.offered["recall"]["properties"]) == {"query", "k", "kinds"}
    stored, found = script.answers
    assert stored.content["seq"] > 0
    assert [hit["summary"] for hit in found.content["hits"]] == ["The vault opens at nine"]


async def test_an_agent_writes_and_reads_a_memory_file(stack: Stack, journal: AsyncCrewJournal) -> None:
    async with stack.client() as owner:
        await owner.register_agent("ada", memory_enabled=True, crew_id="red", workspace_id="pydantic-ai")
    text = {"tier": "AGENT", "mode": "replace", "content": "- deploys on Fridays are frozen"}
    script = await run(journal, ("memory_write", text), ("memory_read", {"tier": "AGENT"}))
    assert "deploys on Fridays are frozen" in script.answers[1].content["content"]


async def test_a_wrong_argument_asks_the_model_to_try_again(journal: AsyncCrewJournal) -> None:
    script = await run(journal, ("remember", {"text": " ", "colour": "red"}), ("remember", {"text": "A fact"}))
    wrong, right = script.answers
    assert wrong.outcome == "retried"
    assert "colour" in str(wrong.content)
    assert right.content["seq"] > 0


async def test_a_memory_that_is_down_says_so_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crew_journal.services.client.core.ATTEMPTS", 1)
    async with AsyncCrewJournal("http://127.0.0.1:9", "cj_none") as nowhere:
        script = await run(nowhere, ("recall", {"query": "anything"}), ("remember", {"text": "A fact"}))
    assert "The memory is not available" in script.answers[0].content
    assert "Nothing was read" in script.answers[0].content
    assert "may or may not be stored" in script.answers[1].content


async def test_an_unknown_toolset_is_refused(journal: AsyncCrewJournal) -> None:
    from crew_journal.services.client.adapters.pydantic_ai_tools import memory_toolset

    with pytest.raises(InvalidQuery, match="no toolset"):
        memory_toolset(journal, ["cor"])
