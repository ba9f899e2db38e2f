"""The session of the OpenAI Agents SDK: its protocol, and with ``nightly`` a run of the real package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.client.adapters.openai_session import CrewJournalSession

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "What is the weather in Ulm?"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Ulm"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {
        "role": "assistant",
        "type": "message",
        "content": [{"type": "output_text", "text": "It is sunny.", "annotations": []}],
    },
]


@pytest.fixture
async def journal(stack: Stack) -> AsyncIterator[AsyncCrewJournal]:
    token = await stack.token(Role.AGENT, "sessions", agent="ada")
    async with stack.client(token.plaintext) as client:
        yield client


async def test_items_come_back_in_order_and_limits_give_the_last_ones(journal: AsyncCrewJournal) -> None:
    session = CrewJournalSession("orders", journal)
    assert await session.get_items() == []
    await session.add_items(ITEMS[:2])
    await session.add_items(ITEMS[2:])
    assert await session.get_items() == ITEMS
    assert await session.get_items(2) == ITEMS[2:]
    assert await session.get_items(0) == []
    session.session_settings = SimpleNamespace(limit=1)
    assert await session.get_items() == ITEMS[3:]


async def test_items_are_turns_of_a_conversation_with_their_text_as_summary(journal: AsyncCrewJournal) -> None:
    session = CrewJournalSession("turns", journal)
    await session.add_items(ITEMS)
    entries = sorted([entry async for entry in journal.entries(trace_id="turns")], key=lambda entry: entry.seq)
    assert [(entry.entry_type, entry.summary) for entry in entries] == [
        ("chat.user_message", "What is the weather in Ulm?"),
        ("chat.agent_response", 'weather {"city": "Ulm"}'),
        ("chat.agent_response", "sunny"),
        ("chat.agent_response", "It is sunny."),
    ]


async def test_taking_out_and_clearing_retract(journal: AsyncCrewJournal) -> None:
    session = CrewJournalSession("popped", journal)
    assert await session.pop_item() is None
    await session.add_items(ITEMS)
    assert await session.pop_item() == ITEMS[3]
    assert await session.pop_item() == ITEMS[2]
    assert await session.get_items() == ITEMS[:2]
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items(ITEMS[:1])
    assert await session.get_items() == ITEMS[:1]
    entries = [entry async for entry in journal.entries(trace_id="popped")]
    assert sum(entry.standing is not None and entry.standing.state == "retracted" for entry in entries) == 4


async def test_any_text_names_a_session_of_its_own(journal: AsyncCrewJournal) -> None:
    one, other = CrewJournalSession("user 7 / Zoë", journal), CrewJournalSession("user 8 / Zoë", journal)
    await one.add_items(ITEMS[:1])
    assert await other.get_items() == []
    assert await CrewJournalSession("user 7 / Zoë", journal).get_items() == ITEMS[:1]


@pytest.mark.nightly
async def test_the_real_package_runs_on_it(journal: AsyncCrewJournal) -> None:
    agents: Any = pytest.importorskip(
        "agents", reason="pip install crew-journal[openai-agents]; its pins do not fit the lock"
    )
    from agents.memory import Session
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    inputs: list[Any] = []

    class Scripted(agents.Model):  # type: ignore[name-defined]  # imported as Any
        async def get_response(self, *_: Any, **given: Any) -> Any:
            inputs.append(given["input"])
            text = ResponseOutputText(type="output_text", text=f"answer {len(inputs)}", annotations=[], logprobs=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return agents.ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(True)
    session = CrewJournalSession("run", journal)
    assert isinstance(session, Session)
    agent = agents.Agent(name="ada", model=Scripted())
    first = await agents.Runner.run(agent, "My cat is called Mia", session=session)
    second = await agents.Runner.run(agent, "What is she called?", session=CrewJournalSession("run", journal))
    assert (first.final_output, second.final_output) == ("answer 1", "answer 2")
    assert [item["content"] for item in inputs[1] if item.get("role") == "user"] == [
        "My cat is called Mia",
        "What is she called?",
    ]
    assert len(await session.get_items()) == 4
