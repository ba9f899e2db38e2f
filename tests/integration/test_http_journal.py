"""The journal over HTTP, against a real broker and real views."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from support.patience import impatient
from support.stack import Stack, running_stack

from crew_journal.schemas.api import EntriesAnswer, EntryAnswer
from crew_journal.schemas.core.principal import Role
from crew_journal.services.http.route import HttpLimits

MAX_BODY = 1_000_000
ENTRY = {"entry_type": "run.completed", "summary": "Built the report"}


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path_factory.mktemp("http"), limits=HttpLimits(body_bytes=MAX_BODY)) as running:
        yield running


@pytest.fixture
async def http(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with stack.http() as client:
        yield client


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body["trace_id"] == answer.headers["x-trace-id"]
    return dict(body)


async def test_an_appended_entry_is_read_back_with_min_seq(http: httpx.AsyncClient) -> None:
    sent = ENTRY | {"workspace_id": "echo", "payload": {"n": 1, "text": "späte Größe\u2028"}, "refs": {"a": [1, None]}}
    answer = await http.post("/v1/journal", json=sent)
    assert answer.status_code == 201
    (receipt,) = answer.json()["entries"]
    assert set(receipt) == {"id", "seq"}
    listed = await http.get("/v1/journal", params={"min_seq": receipt["seq"], "workspace_id": "echo"})
    page = listed.json()
    EntriesAnswer.model_validate(page)
    (entry,) = page["entries"]
    assert entry["id"] == receipt["id"]
    assert entry["payload"] == sent["payload"]
    assert entry["refs"] == sent["refs"]
    assert entry["crew_id"] is None
    assert page["view_seq"] >= receipt["seq"]
    assert page["next_cursor"] is None
    found = await http.get(f"/v1/journal/{receipt['id']}", params={"workspace_id": "echo"})
    assert found.json() == entry | {"view_seq": found.json()["view_seq"]}
    EntryAnswer.model_validate(found.json())


async def test_an_exact_repeat_returns_the_first_result_and_other_content_conflicts(http: httpx.AsyncClient) -> None:
    sent = ENTRY | {"id": "twice", "workspace_id": "repeat"}
    first = (await http.post("/v1/journal", json=sent)).json()["entries"][0]
    again = await http.post("/v1/journal", json=[sent])
    assert again.status_code == 201
    assert again.json()["entries"] == [first | {"duplicate": True}]
    problem = problem_of(await http.post("/v1/journal", json=sent | {"summary": "Other"}), 409)
    assert "twice" in problem["detail"]
    counted = await http.get("/v1/journal/count", params={"min_seq": first["seq"], "workspace_id": "repeat"})
    assert counted.json()["count"] == 1


async def test_a_batch_is_all_or_nothing_and_every_offending_field_is_named(http: httpx.AsyncClient) -> None:
    batch = [
        ENTRY | {"workspace_id": "batch"},
        {"entry_type": "Bad Type", "severity": "fatal", "workspace_id": "batch"},
        ENTRY | {"workspace_id": "batch", "extra": 1},
    ]
    problem = problem_of(await http.post("/v1/journal", json=batch), 422)
    fields = {item["field"] for item in problem["problems"]}
    assert fields == {"entries[1].entry_type", "entries[1].severity", "entries[1].summary", "entries[2].extra"}
    assert all(item["problem"] for item in problem["problems"])
    last = (await http.post("/v1/journal", json=batch[:1])).json()["entries"][0]["seq"]
    counted = await http.get("/v1/journal/count", params={"min_seq": last, "workspace_id": "batch"})
    assert counted.json()["count"] == 1


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "line 1"),
        (b'{"summary": "a",\n "entry_type": }', 400, "line 2, column 16"),
        (b'{"summary": NaN}', 400, "not valid JSON"),
        (b"\xff\xfe", 400, "not valid JSON"),
        (b'"text"', 422, "entry"),
        (b"null", 422, "entry"),
        (b"[]", 400, "empty"),
        (b"[1, null]", 422, "entries[0]"),
        (b"[" + b"[" * 3_000, 400, "not valid JSON"),
        (b'{"entry_type":"a","summary":"x","payload":' + b'{"a":' * 600 + b"1" + b"}" * 601, None, ""),
    ],
)
async def test_a_body_that_is_no_entry_is_a_problem_of_the_client(
    http: httpx.AsyncClient, body: bytes, status: int | None, says: str
) -> None:
    answer = await http.post("/v1/journal", content=body)
    if status is None:
        assert answer.status_code in (201, 400, 413, 422), answer.text
    else:
        assert says in str(problem_of(answer, status))


async def test_a_body_over_the_bound_is_refused_whether_or_not_it_says_so(http: httpx.AsyncClient) -> None:
    problem_of(await http.post("/v1/journal", content=b" " * (MAX_BODY + 1)), 413)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * (MAX_BODY // 2)

    problem_of(await http.post("/v1/journal", content=chunks()), 413)
    problem_of(await http.post("/v1/journal", json=[ENTRY] * 1_001), 413)
    problem_of(await http.post("/v1/journal", json=ENTRY | {"payload": {"x": "y" * 300_000}}), 413)


async def test_a_client_that_sends_all_before_it_reads_gets_the_413_of_a_body_over_the_bound(stack: Stack) -> None:
    address = httpx.URL(stack.url)

    def post() -> int:
        connection = HTTPConnection(address.host, address.port)
        try:
            head = {"Authorization": f"Bearer {stack.owner}"}
            connection.request("POST", "/v1/journal", b" " * (2 * MAX_BODY), head)
            return connection.getresponse().status
        finally:
            connection.close()

    assert [await asyncio.to_thread(post) for _ in range(3)] == [413] * 3


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"}, {"limit": "501"}, {"limit": "-1"}, {"limit": "ten"}, {"limit": "1e2"}, {"limit": "١"},
        {"cursor": "nonsense"}, {"q": "x" * 201}, {"since": "today"}, {"min_seq": "-1"}, {"min_seq": str(2**63)},
        {"severity": "fatal"}, {"agent": "a1"}, {"workspace_id": "_system"}, {"workspace_id": "no spaces"},
    ],
)  # fmt: skip
async def test_a_parameter_out_of_range_or_unknown_is_a_400(http: httpx.AsyncClient, params: dict[str, str]) -> None:
    problem = problem_of(await http.get("/v1/journal", params=params), 400)
    assert problem["title"] == "The request is not valid"
    assert problem["field"] == next(iter(params))


@pytest.mark.parametrize("name", ["workspace_id", "as_of"])
async def test_an_append_with_a_parameter_is_refused_and_stores_nothing(http: httpx.AsyncClient, name: str) -> None:
    entry = ENTRY | {"id": f"with_{name}"}
    problem = problem_of(await http.post("/v1/journal", params={name: "acme"}, json=entry), 400)
    assert problem["field"] == name
    stored = await http.post("/v1/journal", json=entry | {"summary": "another content of the same id"})
    assert stored.status_code == 201


async def test_a_repeated_parameter_is_a_400(http: httpx.AsyncClient) -> None:
    problem_of(await http.get("/v1/journal?limit=1&limit=2"), 400)
    problem_of(await http.get("/v1/journal?trace_id=a&trace_id=b"), 400)


async def test_count_ignores_cursor_and_limit(http: httpx.AsyncClient) -> None:
    sent = [ENTRY | {"workspace_id": "counted"}] * 3
    last = (await http.post("/v1/journal", json=sent)).json()["entries"][-1]["seq"]
    params = {"workspace_id": "counted", "min_seq": last, "limit": "1", "cursor": "0|a"}
    assert (await http.get("/v1/journal/count", params=params)).json()["count"] == 3


async def test_a_sequence_that_does_not_come_is_a_503_that_says_when_to_retry(stack: Stack) -> None:
    async with stack.http() as http:
        with impatient():
            answer = await http.get("/v1/journal", params={"min_seq": 2**62})
    assert problem_of(answer, 503)["title"] == "The views are behind"
    assert answer.headers["retry-after"] == "1"


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


async def test_agents_may_not_publish_what_needs_authority(stack: Stack) -> None:
    agent = await stack.token(Role.AGENT, "acme", agent="eve", crew="core")
    async with stack.http(agent.plaintext) as http:
        problem_of(await http.post("/v1/journal", json=ENTRY | {"priority": "pin"}), 403)
        problem_of(await http.post("/v1/journal", json=ENTRY | {"entry_type": "token.created"}), 403)
        problem_of(await http.post("/v1/journal", json=ENTRY | {"workspace_id": "other"}), 403)
    async with stack.http() as owner:
        problem_of(await owner.post("/v1/journal", json=ENTRY | {"entry_type": "token.revoked"}), 403)
        assert (await owner.post("/v1/journal", json=ENTRY | {"priority": "pin"})).status_code == 201


async def test_recall_finds_what_was_appended_and_names_its_recipe(stack: Stack) -> None:
    async with stack.client() as client:
        text = {"entry_type": "peer.escalation", "summary": "The parser deadlocks on empty files", "agent_id": "a1"}
        receipt = await client.append(text | {"workspace_id": "recalls"})
        found = await client.recall("why does the parser deadlock", workspace_id="recalls", min_seq=receipt.seq)
        assert [hit.entry_id for hit in found.hits] == [receipt.id]
        assert found.degraded == "lexical-only"
        assert found.view_seq >= receipt.seq
    async with stack.http() as http:
        problem_of(await http.post("/v1/recall", json=["no object"]), 400)
        assert problem_of(await http.post("/v1/recall", json={"k": 3}), 400)["field"] == "query"
        assert problem_of(await http.post("/v1/recall", json={"query": "x", "k": 10**20}), 400)["field"] == "k"
