"""Attacks on a running node with the token of one agent: floods and streams that others must not notice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest
from support.ingest import agent_client
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

MIB = 2**20
REQUESTS = 4
CONNECTIONS = 24


@pytest.fixture(scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    limits = {
        "token_waiting_mb": 1,
        "token_mb_per_minute": 3,
        "token_entries_per_minute": 500,
        "token_requests": REQUESTS,
        "http_connections": CONNECTIONS,
    }
    async with running_node(tmp_path_factory.mktemp("budgets"), **limits) as runtime:
        yield runtime


def http(node: Runtime, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=node.http_url, headers=headers, trust_env=False, timeout=180)


async def agent_token(node: Runtime, workspace: str, agent: str) -> str:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        made = await journal.create_token(role="AGENT", workspace_id=workspace, agent_id=agent, crew_id="crew")
        return made.token


def batch(seed: int, size: int) -> bytes:
    """Entries of words that no other entry has."""
    words = random.Random(seed)
    text = " ".join(f"{words.getrandbits(40):x}" for _ in range(20_000 // 11))
    return orjson.dumps([{"entry_type": "note.x", "summary": text[:100], "payload": {"t": text}}] * (size // 20_000))


async def test_a_flood_of_one_agent_is_held_up_before_another_workspace_waits_for_it(node: Runtime) -> None:
    async with (
        http(node, await agent_token(node, "evil", "mallory")) as flooding,
        http(node, await agent_token(node, "good", "ada")) as other,
    ):
        answers = []
        for at in range(12):
            answers += await asyncio.gather(
                *(flooding.post("/v1/journal", content=batch(3 * at + n, MIB // 2)) for n in range(3))
            )
        refused = [answer for answer in answers if answer.status_code != 201]
        assert {answer.status_code for answer in refused} == {429}
        for answer in refused:
            problem = answer.json()
            assert problem["code"] == "OverBudget"
            assert problem["budget"] in ("bytes waiting to be folded", "bytes a minute")
            assert problem["setting"].startswith("CREW_JOURNAL_TOKEN_")
            assert int(answer.headers["retry-after"]) == problem["retry_after_s"] >= 1
        stored = (len(answers) - len(refused)) * MIB / 2
        assert stored <= 3 * MIB + MIB, "no more than a minute's bytes, and what was under way"
        document = {"tier": "AGENT", "mode": "replace", "content": "Ada keeps the plan."}
        assert (await other.post("/memory/write", json=document)).status_code < 300
        assert (await other.post("/v1/journal", json={"entry_type": "note.x", "summary": "x"})).status_code == 201


async def test_a_request_above_what_may_wait_is_refused_as_too_large(node: Runtime) -> None:
    async with http(node, await agent_token(node, "evil", "large")) as flooding:
        answer = await flooding.post("/v1/journal", content=batch(1, MIB + 100_000))
    assert answer.status_code == 413
    assert "CREW_JOURNAL_TOKEN_WAITING_MB" in answer.json()["hint"]


async def test_the_owner_imports_what_an_agent_may_not(node: Runtime) -> None:
    async with http(node, node.owner_token) as importing:
        for at in range(3):
            answer = await importing.post("/v1/journal", content=batch(100 + at, 2 * MIB))
            assert answer.status_code == 201


async def test_entries_of_a_minute_are_counted_over_every_way_of_writing(node: Runtime) -> None:
    async with http(node, await agent_token(node, "evil", "counted")) as flooding:
        many = [{"entry_type": "note.x", "summary": f"Entry {n}"} for n in range(990)]
        assert (await flooding.post("/v1/journal", json=many)).status_code == 201
        ways = (
            ("/v1/journal", {"entry_type": "note.x", "summary": "x"}),
            ("/v1/memory/remember", {"text": "The plan is kept by Ada."}),
            ("/memory/write", {"tier": "AGENT", "mode": "replace", "content": "x"}),
        )
        answers = [await flooding.post(path, json=body) for path, body in ways for _ in range(2)]
        assert [answer.status_code for answer in answers] == [429] * 6
        assert {answer.json()["budget"] for answer in answers} == {"entries a minute"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        called = await flooding.post(
            "/mcp",
            json={**call, "params": {"name": "remember", "arguments": {"text": "The plan is kept by Ada."}}},
            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"},
        )
        assert "entries within a minute" in called.json()["result"]["content"][0]["text"]
        assert called.json()["result"]["isError"]
        assert (await flooding.get("/v1/journal")).status_code == 200, "reading is not writing"
        assert (await flooding.post("/v1/recall", json={"query": "who keeps the plan"})).status_code == 200


async def test_requests_over_nats_have_the_same_budgets(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        made = await journal.create_token(role="AGENT", workspace_id="evil", agent_id="natsy", crew_id="c", nats=True)
    access = made.nats_access
    assert access is not None
    async with agent_client(access.address, access.user, access.password) as client:
        many = orjson.dumps([{"entry_type": "note.x", "summary": f"Entry {n}"} for n in range(990)])
        first = orjson.loads((await client.request(access.subject, many, timeout=60)).data)
        assert len(first["entries"]) == 990
        refused = await client.request(access.subject, many, timeout=60)
        assert refused.headers is not None
        assert refused.headers["Nats-Service-Error-Code"] == "429"
        assert orjson.loads(refused.data)["budget"] == "entries a minute"


async def test_open_streams_of_one_agent_leave_places_to_itself_others_and_health(node: Runtime) -> None:
    token = await agent_token(node, "evil", "streams")
    async with (
        http(node, token) as flooding,
        http(node, node.owner_token) as owner,
        contextlib.AsyncExitStack() as held,
    ):
        statuses = []
        for _ in range(2 * CONNECTIONS):
            stream = flooding.stream("GET", "/v1/journal/stream")
            statuses.append((await held.enter_async_context(stream)).status_code)
        assert statuses == [200] * REQUESTS + [429] * (2 * CONNECTIONS - REQUESTS)
        assert (await owner.get("/healthz")).status_code == 200
        assert (await owner.get("/v1/status")).status_code == 200
    async with http(node, token) as later:
        assert (await later.get("/v1/journal")).status_code == 200, "their places are free again"


async def test_a_get_of_the_tools_opens_no_stream(node: Runtime) -> None:
    async with http(node, await agent_token(node, "evil", "tools")) as flooding:
        answers = [await flooding.get("/mcp") for _ in range(2 * CONNECTIONS)]
        assert {(answer.status_code, answer.headers["allow"]) for answer in answers} == {(405, "DELETE, POST")}
        assert (await flooding.get("/healthz")).status_code == 200


async def test_many_agents_together_leave_the_reserved_connections_to_others(node: Runtime) -> None:
    agents = [await agent_token(node, "evil", f"one{at}") for at in range(CONNECTIONS // REQUESTS + 1)]
    async with contextlib.AsyncExitStack() as held:
        statuses = []
        for token in agents:
            flooding = await held.enter_async_context(http(node, token))
            for _ in range(REQUESTS):
                answer = await held.enter_async_context(flooding.stream("GET", "/v1/journal/stream"))
                statuses.append(answer.status_code)
        assert statuses.count(200) == CONNECTIONS - CONNECTIONS // 8
        assert set(statuses) == {200, 503}
        async with http(node, node.owner_token) as owner:
            assert (await owner.get("/healthz")).status_code == 200
            assert (await owner.get("/v1/status")).status_code == 200
