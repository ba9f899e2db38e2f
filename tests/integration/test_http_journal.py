"""The journal over HTTP, against a real broker and real views."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.principal import Role


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as running:
        yield running


async def test_an_appended_entry_is_read_back_with_min_seq(stack: Stack) -> None:
    async with stack.http() as http:
        sent = {
            "entry_type": "run.completed",
            "summary": "Built the report",
            "payload": {"n": 1, "text": "späte Größe"},
        }
        answer = await http.post("/v1/journal", json=sent)
        assert answer.status_code == 201
        (receipt,) = answer.json()["entries"]
        listed = await http.get("/v1/journal", params={"min_seq": receipt["seq"]})
        assert listed.status_code == 200
        page = listed.json()
        assert [entry["id"] for entry in page["entries"]] == [receipt["id"]]
        entry = page["entries"][0]
        assert entry["payload"] == sent["payload"]
        assert entry["workspace_id"] == "default"
        assert entry["crew_id"] is None
        assert page["view_seq"] >= receipt["seq"]
        assert page["next_cursor"] is None
        found = await http.get(f"/v1/journal/{receipt['id']}")
        assert found.json()["entry"] == entry


async def test_an_agent_sees_its_own_entries_and_a_lead_the_crews(stack: Stack) -> None:
    agent = await stack.token(Role.AGENT, "acme", agent="ada", crew="core")
    other = await stack.token(Role.AGENT, "acme", agent="bob", crew="core")
    lead = await stack.token(Role.LEAD, "acme", agent="liz", crew="core")
    async with stack.client(agent.plaintext) as ada, stack.client(other.plaintext) as bob:
        await ada.append({"entry_type": "run.completed", "summary": "by ada"})
        last = await bob.append({"entry_type": "run.completed", "summary": "by bob"})
        assert [e.summary for e in (await ada.list(min_seq=last.seq)).entries] == ["by ada"]
        assert (await bob.count()).count == 1
    async with stack.client(lead.plaintext) as liz:
        assert {e.summary for e in (await liz.list()).entries} == {"by ada", "by bob"}
