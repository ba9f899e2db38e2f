"""Two tokens of two workspaces: no route, filter, cursor or id of one ever shows a row of the other (issue 2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.core.principal import Role
from crew_journal.services.entries.filters import FILTER_PARAMETERS
from crew_journal.services.http.app import App

MARK = {"acme": "zirconium", "globex": "palladium"}
"""A word that only one workspace's entries hold; it is in every text, id and name of theirs."""
SHARED = "The deploy of the billing parser failed again"
ROLES = {
    "OWNER": {},
    "ADMIN": {},
    "LEAD": {"agent": "ada", "crew": "core"},
    "AGENT": {"agent": "ada", "crew": "core"},
}
DEADLINE_S = 120.0


@dataclass
class World:
    stack: Stack
    tokens: dict[tuple[str, str], str]
    ids: dict[str, list[str]]
    last_seq: int
    cursors: dict[str, str]


def _entries(workspace: str) -> list[dict[str, Any]]:
    """The same ids, crews, agents and words in both workspaces; only the mark tells them apart."""
    mark = MARK[workspace]
    return [
        {
            "id": f"same-{n}" if n % 2 else f"{mark}-{n}",
            "workspace_id": workspace,
            "crew_id": "core",
            "agent_id": "ada",
            "trace_id": "run-1",
            "mission_id": "m-1",
            "actor_type": "agent",
            "actor_id": "ada",
            "data_subject_id": "maria",
            "ts": f"2026-11-20T10:00:{n % 3:02d}.000Z",
            "entry_type": "peer.escalation" if n % 3 else "run.completed",
            "severity": "warn",
            "summary": f"{SHARED}, {mark} {n}",
            "payload": {"run_id": "run-1", "question": mark},
        }
        for n in range(12)
    ]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with running_stack(tmp_path_factory.mktemp("isolation")) as stack:
        tokens = {
            (workspace, role): (await stack.token(Role(role), workspace, **bound)).plaintext
            for workspace in MARK
            for role, bound in ROLES.items()
        }
        ids, cursors, last = {}, {}, 0
        async with stack.client() as owner:
            for workspace in MARK:
                receipts = await owner.append_batch(_entries(workspace))
                ids[workspace] = [receipt.id for receipt in receipts]
                last = receipts[-1].seq
            for workspace in MARK:
                page = await owner.list(limit=5, min_seq=last, workspace_id=workspace)
                cursors[workspace] = str(page.next_cursor)
        yield World(stack, tokens, ids, last, cursors)


PAIRS = [
    *(("acme", "globex", role) for role in ROLES),
    ("globex", "acme", "AGENT"),
    *(pytest.param("globex", "acme", role, marks=pytest.mark.nightly) for role in ROLES if role != "AGENT"),
]


def _clean(answer: httpx.Response, other: str, echoed: str = "") -> None:
    """Nothing of the other workspace is in the answer, but for what the request itself named."""
    assert answer.status_code < 500, answer.text
    text = answer.text.replace(echoed, "") if echoed else answer.text
    assert MARK[other] not in text
    assert other not in text


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_filter_shows_the_other_workspace(world: World, mine: str, other: str, role: str) -> None:
    values = {
        "crew_id": "core", "crew_ids": "core", "agent_id": "ada", "agent_ids": "ada", "mission_id": "m-1",
        "trace_id": "run-1", "actor_id": "ada", "data_subject_id": "maria", "run_id": "run-1",
        "types": "peer.escalation",
        "entry_type": "run.completed", "exclude_types": "llm.call", "severities": "warn", "severity": "warn",
        "actor_types": "agent", "actor_type": "agent", "priorities": "normal", "priority": "normal",
        "since": "2000-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z", "q": "billing parser",
    }  # fmt: skip
    assert set(values) == set(FILTER_PARAMETERS), "a filter is not tested"
    async with world.stack.http(world.tokens[mine, role]) as http:
        for params in [{}, *({name: value} for name, value in values.items()), {"q": MARK[other]}]:
            before = (await http.get("/v1/journal/count", params={**params, "min_seq": world.last_seq})).json()["count"]
            listed = await http.get("/v1/journal", params=params)
            _clean(listed, other)
            entries = listed.json()["entries"]
            assert {entry["workspace_id"] for entry in entries} <= {mine}
            counted = (await http.get("/v1/journal/count", params=params)).json()["count"]
            assert before <= len(entries) <= counted, f"{params}: records of recalls may come meanwhile"
            assert counted > 0 or params == {"q": MARK[other]}


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_id_and_no_cursor_reaches_the_other_workspace(world: World, mine: str, other: str, role: str) -> None:
    async with world.stack.http(world.tokens[mine, role]) as http:
        for entry_id in world.ids[other]:
            answer = await http.get(f"/v1/journal/{entry_id}")
            if entry_id in world.ids[mine]:
                assert answer.json()["workspace_id"] == mine
                _clean(answer, other)
                continue
            unknown = "x" * len(entry_id)
            nothing = await http.get(f"/v1/journal/{unknown}")
            assert answer.status_code == nothing.status_code == 404
            told, said = answer.json(), nothing.json()
            del told["trace_id"], said["trace_id"]
            assert str(told).replace(entry_id, unknown) == str(said)
        cursor = world.cursors[other]
        page = await http.get("/v1/journal", params={"cursor": cursor})
        _clean(page, other)


BODIES = {"/v1/journal/{entry_id}/priority": {"priority": "pin", "reason": "mine now"}}
"""What a route must be sent before it asks whose workspace is named."""
NEEDED = {
    "tier": "AGENT",
    "from_version": 0,
    "entity": "ada",
    "agent_name": "ada",
    "start_room": "attic",
    "user": "maria",
    "kind": "fact",
    "name": "t_1",
}


def _needed(route: dict[str, Any]) -> dict[str, Any]:
    """Values of the parameters that the route requires in the query string."""
    parameters = route.get("parameters", ())
    return {
        parameter["name"]: NEEDED[parameter["name"]]
        for parameter in parameters
        if parameter["in"] == "query" and parameter.get("required")
    }


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_naming_the_other_workspace_is_refused_the_same_whether_it_exists(
    world: World, mine: str, other: str, role: str
) -> None:
    app = App(world.stack.services)
    async with world.stack.http(world.tokens[mine, role]) as http:
        tried = 0
        for path, methods in app.openapi()["paths"].items():
            for method, route in methods.items():
                if not any(parameter["name"] == "workspace_id" for parameter in route.get("parameters", ())):
                    continue
                where = path.format(
                    entry_id="same-1",
                    agent_id="ada",
                    crew_id="red",
                    drawer_id="drawer_a_b_1",
                    erasure_id="x_1",
                    name="same-1",
                    tunnel_id="tunnel_1",
                    proposal_id="d_1",
                    fact_id="t_1",
                    seq=1,
                    decision="retry",
                )
                answers = [
                    await http.request(
                        method, where, params={**_needed(route), "workspace_id": name}, json=BODIES.get(path)
                    )
                    for name in (other, "never-heard-of")
                ]
                assert [answer.status_code for answer in answers] == [403, 403], where
                _clean(answers[0], other)
                tried += 1
        assert tried >= 8
        for body in ({"query": SHARED}, {"query": SHARED, "explain": True}):
            answers = [
                await http.post("/v1/recall", json={**body, "workspace_id": name}) for name in (other, "never-heard-of")
            ]
            assert [answer.status_code for answer in answers] == [403, 403]
        sent = {"entry_type": "run.completed", "summary": "intruder", "workspace_id": other}
        assert (await http.post("/v1/journal", json=sent)).status_code == 403
        assert (await http.post("/v1/journal", json=[sent])).status_code == 403


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_recall_shows_or_weighs_the_other_workspace(world: World, mine: str, other: str, role: str) -> None:
    async with world.stack.http(world.tokens[mine, role]) as http:
        for recipe in ("robust", "conversational", "conversational-static", "rrf", "dense", "lexical"):
            for query in (SHARED, MARK[other], "same-1"):
                body = {"query": query, "k": 50, "recipe": recipe, "explain": True, "min_seq": world.last_seq}
                answer = await http.post("/v1/recall", json=body)
                assert answer.status_code == 200, answer.text
                _clean(answer, other)
                own = {entry["id"] for entry in _entries(mine)}
                assert {hit["entry_id"] for hit in answer.json()["hits"]} <= own


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_tail_shows_the_other_workspace(world: World, mine: str, other: str, role: str) -> None:
    async with world.stack.http(world.tokens[mine, role]) as http, world.stack.client() as owner:
        headers = {"Last-Event-ID": "0"}
        async with http.stream("GET", "/v1/journal/stream", headers=headers, timeout=DEADLINE_S) as stream:
            lines = stream.aiter_lines()
            text = ""
            live = {"entry_type": "run.completed", "agent_id": "ada", "crew_id": "core", "payload": {}}
            await owner.append(live | {"workspace_id": other, "summary": f"live {MARK[other]}"})
            await owner.append(live | {"workspace_id": mine, "summary": "the end of the test"})
            async with asyncio.timeout(DEADLINE_S):
                async for line in lines:
                    text += line
                    if "the end of the test" in line:
                        break
        assert MARK[mine] in text
        assert MARK[other] not in text
        assert other not in text


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_status_tokens_and_dead_letters_do_not_name_the_other_workspace(
    world: World, mine: str, other: str, role: str
) -> None:
    async with world.stack.http(world.tokens[mine, role]) as http:
        for path in ("/v1/status", "/v1/admin/tokens", "/v1/admin/dlq", "/metrics"):
            _clean(await http.get(path), other)


async def test_the_same_id_in_both_workspaces_is_two_entries(world: World) -> None:
    async with world.stack.client() as owner:
        texts = {(await owner.get("same-1", workspace_id=workspace)).summary for workspace in MARK}
    assert len(texts) == 2


async def test_an_agent_learns_nothing_of_other_agents_of_its_workspace(world: World) -> None:
    stranger = (await world.stack.token(Role.AGENT, "acme", agent="eve", crew="core")).plaintext
    async with world.stack.http(stranger) as http:
        assert (await http.get("/v1/journal", params={"agent_id": "ada"})).json()["entries"] == []
        assert (await http.get("/v1/journal/count", params={"q": MARK["acme"]})).json()["count"] == 0
        assert (await http.get("/v1/journal/same-1")).status_code == 404
        found = await http.post("/v1/recall", json={"query": SHARED, "min_seq": world.last_seq})
        assert found.json()["hits"] == []
        assert (await http.post("/v1/recall", json={"query": SHARED, "agent_id": "ada"})).status_code == 403
        assert (await http.post("/v1/recall", json={"query": SHARED, "scope": "crew_shared"})).status_code == 403
