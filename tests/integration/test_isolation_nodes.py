"""Three nodes: every operation through the wrong node, with the wrong token, and as a message that no node has signed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import orjson
import pytest
from nats.errors import Error as NatsError
from support.nats import running_broker
from support.nodes import client_of, owned_by, running_nodes
from support.requests_of import Verdicts, asked, good_request
from support.tool_calls import Place, foreign, furnish

from crew_journal.schemas.core.errors import NotAuthenticated
from crew_journal.schemas.core.operation import Access, Effect
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.operations import ALL
from crew_journal.schemas.toolsets import TOOLSETS
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.http.routes_journal import JOURNAL_ROUTES
from crew_journal.services.http.routes_memory_stores import MEMORY_STORE_ROUTES
from crew_journal.services.http.routes_status import ADMIN_ROUTES, STATUS_ROUTES
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.runtime.node import Runtime
from crew_journal.services.web.pages import PAGES

NAMES = ("a", "b", "c")
MINE, OTHER = "zirconium", "palladium"
KNOWN_S = 5.0
UNANSWERED_S = 0.3
ASKED_AGAIN = 5
"""Times that two nodes are asked: the uses that former answers count may be folded between the two."""
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
VOLATILE = {"receipt", "view_seq", "now", "trace_id", "age_seconds", "until_seq"}
"""Fields that differ between two answers of one node."""


DESCRIBED = (*JOURNAL_ROUTES, *ADMIN_ROUTES, *STATUS_ROUTES)
BESIDE = (
    *(tuple(route.route.split(" ", 1)) for route in DESCRIBED if route.open is None),
    *((method, route.path) for route in MEMORY_STORE_ROUTES for method in (route.methods or ()) if method != "HEAD"),
    ("POST", "/mcp"),
)
"""Method and path of every route that needs a token and is no operation."""
ENTRY = {"entry_type": "run.completed", "agent_id": "ada", "crew_id": "red"}


RANDOM = re.compile(r'nonce="[0-9a-f]+"|\br_[0-9a-f]{32}|\b(just now|\d+ s(econds)? ago)\b')


@dataclass(frozen=True)
class World:
    """Nodes, a workspace owned by ``b``, another owned by ``c``, and tokens of the first."""

    broker: ManagedBroker
    nodes: dict[str, Runtime]
    mine: Place
    other: Place
    tokens: dict[str, str]

    def http(self, node: str, token: str) -> httpx.AsyncClient:
        """A client of one node."""
        headers = {"Authorization": f"Bearer {self.tokens[token]}"}
        return httpx.AsyncClient(base_url=self.nodes[node].http_url, headers=headers, timeout=60)


async def placed(owner: AsyncCrewJournal, workspace: str, mark: str, url: str) -> Place:
    made = await owner.create_token("LEAD", workspace_id=workspace, agent_id="ada", crew_id="red")
    async with AsyncCrewJournal(url, made.token) as ada:
        return await furnish(owner, ada, workspace, mark)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("isolation")
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(folder / "broker"))
        at = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
        nodes = await stack.enter_async_context(running_nodes(folder, NAMES, **at))
        owner = await stack.enter_async_context(client_of(nodes["a"]))
        url = nodes["a"].http_url
        mine = await placed(owner, owned_by("b", NAMES), MINE, url)
        other = await placed(owner, owned_by("c", NAMES), OTHER, url)
        bound: dict[str, Any] = {"workspace_id": mine.workspace, "agent_id": "ada", "crew_id": "red"}
        made = {role: await owner.create_token(role, **bound) for role in ("AGENT", "LEAD")}
        made["ADMIN"] = await owner.create_token("ADMIN", workspace_id=mine.workspace)
        made["revoked"] = await owner.create_token("AGENT", **bound)
        await owner.revoke_token(made["revoked"].token_id)
        tokens = {name: token.token for name, token in made.items()} | {"garbage": "cj_" + "A" * 43}
        for node in nodes.values():
            for name, token in tokens.items():
                async with asyncio.timeout(KNOWN_S), AsyncCrewJournal(node.http_url, token) as client:
                    while await accepted(client) is (name in ("revoked", "garbage")):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        yield World(broker, nodes, mine, other, tokens)


async def accepted(client: AsyncCrewJournal) -> bool:
    """Whether the node knows the token."""
    try:
        await client.crews()
    except NotAuthenticated:
        return False
    return True


@pytest.mark.parametrize("token", ["revoked", "garbage"])
async def test_no_node_answers_a_token_that_is_not_valid(world: World, token: str) -> None:
    verdicts = Verdicts(OTHER)
    for node in NAMES:
        async with world.http(node, token) as http:
            checks = (
                verdicts.check(f"{op.name} at {node}", lambda op=op: asked(http, op, good_request(op, world.mine)), 401)  # type: ignore[misc]
                for op in ALL
            )
            await asyncio.gather(*checks)
    assert verdicts.asked == len(ALL) * len(NAMES)
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


@pytest.mark.parametrize("token", ["revoked", "garbage"])
async def test_no_node_serves_a_route_beside_the_operations_or_a_page_to_it(world: World, token: str) -> None:
    verdicts = Verdicts(OTHER)
    for node in NAMES:
        async with world.http(node, token) as http:
            for method, path in BESIDE:
                of = re.sub(r"\{.*?\}", f"{world.mine.workspace}-first", path)
                await verdicts.check(
                    f"{method} {of} at {node}", lambda m=method, p=of: http.request(m, p, json={}), 401
                )  # type: ignore[misc]
            signing_in = {"token": world.tokens[token], "next": "/"}
            await verdicts.check(f"sign in at {node}", lambda: http.post("/ui/login", data=signing_in), 401, 403)  # noqa: B023
    assert verdicts.asked == (len(BESIDE) + 1) * len(NAMES)
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


async def test_the_wrong_node_shows_nothing_of_another_workspace_on_routes_beside_the_operations(world: World) -> None:
    verdicts, other = Verdicts(OTHER), world.other.workspace
    async with world.http("c", "AGENT") as http:
        for _, path in (route.route.split(" ", 1) for route in JOURNAL_ROUTES if route.route.startswith("GET")):
            theirs = path.replace("{entry_id}", f"{other}-first")
            await verdicts.check(f"{path} named", lambda p=theirs: http.get(p, params={"workspace_id": other}), 403)
            if path != theirs:
                await verdicts.check(f"{path} of theirs", lambda p=theirs: http.get(p), 404)
        stolen = [ENTRY | {"summary": "stolen", "workspace_id": other}]
        await verdicts.check("append there", lambda: http.post("/v1/journal", json=stolen), 403)
        for _, path in BESIDE:
            if path.startswith("/v1/memory_stores"):
                of = re.sub(r"\{.*?\}", "ada", path)
                await verdicts.check(f"{path} named", lambda p=of: http.get(p, params={"workspace_id": other}))
    assert not verdicts.wrong, "\n".join(verdicts.wrong)
    async with client_of(world.nodes["b"]) as owner:
        last = await owner.append(ENTRY | {"summary": "the end", "workspace_id": other})
        assert not (await owner.list(q="stolen", workspace_id=other, min_seq=last.seq)).entries


@pytest.mark.parametrize(
    "toolset",
    ["palace", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("crew", "layered", "operator"))],
)
async def test_no_tool_of_the_wrong_node_reaches_another_workspace(world: World, toolset: str) -> None:
    verdicts, checks = Verdicts(OTHER), []
    async with world.http("c", "AGENT") as http:
        for tool in TOOLSETS[toolset]:
            for what, arguments, _ in foreign(toolset, tool, world.mine, world.other):
                call = {"name": tool.name, "arguments": arguments}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                request = partial(http.post, f"/mcp?tools={toolset}", json=body, headers=MCP_HEADERS)
                checks.append(verdicts.check(f"{tool.name}: {what}", request, 200, 403))
        await asyncio.gather(*checks)
    assert verdicts.asked == len(checks) > 0
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


async def test_a_tail_and_the_pages_of_the_wrong_node_show_their_own_workspace_alone(world: World) -> None:
    mine, other = world.mine.workspace, world.other.workspace
    async with world.http("c", "AGENT") as http, client_of(world.nodes["b"]) as owner:
        async with http.stream("GET", "/v1/journal/stream", headers={"Last-Event-ID": "0"}) as stream:
            await owner.append(ENTRY | {"summary": f"live {OTHER}", "workspace_id": other})
            await owner.append(ENTRY | {"summary": f"live {MINE}", "workspace_id": mine})
            text = ""
            async with asyncio.timeout(KNOWN_S):
                async for line in stream.aiter_lines():
                    text += line
                    if f"live {MINE}" in line:
                        break
        assert OTHER not in text

    async with httpx.AsyncClient(base_url=world.nodes["c"].http_url, timeout=60) as http:
        inside = await http.post("/ui/login", data={"token": world.tokens["AGENT"], "next": "/"})
        assert inside.status_code == 303
        session = inside.headers["location"].rstrip("/")
        for page in PAGES:
            path = re.sub(r"\{.*?\}", f"{other}-first", page.path).removeprefix("/ui")
            for query in ({}, {"workspace": other}, {"workspace_id": other}, {"q": "press"}):
                shown = await http.get(session + path, params=query)
                assert shown.status_code < 500, (path, shown.text)
                assert OTHER not in shown.text, (path, query)
        elsewhere = await http.get(world.nodes["a"].http_url + session + "/journal")
        assert elsewhere.status_code == 303, "a session is at one node"


@pytest.mark.parametrize("role", ["AGENT", pytest.param("ADMIN", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("node", ["c", pytest.param("a", marks=pytest.mark.nightly)])  # c owns the other workspace
async def test_the_wrong_node_neither_decides_nor_searches_for_another_workspace(
    world: World, node: str, role: str
) -> None:
    verdicts = Verdicts(OTHER)
    async with world.http(node, role) as http:
        checks = []
        for operation in ALL:
            theirs = good_request(operation, world.other)
            if "workspace_id" in operation.request.model_fields:
                named = {**good_request(operation, world.mine), "workspace_id": world.other.workspace}
                checks.append(
                    verdicts.check(f"{operation.name} named", lambda op=operation, of=named: asked(http, op, of), 403)
                )
            if theirs != good_request(operation, world.mine) and operation.effect is Effect.READS:
                checks.append(
                    verdicts.check(
                        f"{operation.name} with their ids", lambda op=operation, of=theirs: asked(http, op, of)
                    )
                )
        await asyncio.gather(*checks)
    assert verdicts.asked > len(ALL) / 2
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


def lasting(value: Any) -> Any:
    """An answer without the fields that differ each time."""
    if isinstance(value, dict):
        return {name: lasting(item) for name, item in value.items() if name not in VOLATILE}
    if isinstance(value, str):
        return RANDOM.sub("", value)
    return [lasting(item) for item in value] if isinstance(value, list) else value


async def test_every_search_through_the_wrong_node_is_the_owners(world: World) -> None:
    async with world.http("a", "AGENT") as wrong, world.http("b", "AGENT") as right:
        for operation in ALL:
            if operation.decided != "index" or operation.access is not Access.EVERY_TOKEN:
                continue
            fields = good_request(operation, world.mine)
            for _ in range(ASKED_AGAIN):
                answers = [await asked(http, operation, fields) for http in (right, wrong)]
                if lasting(answers[0].json()) == lasting(answers[1].json()):
                    break
            assert answers[0].status_code == answers[1].status_code, (operation.name, answers[1].text)
            assert lasting(answers[0].json()) == lasting(answers[1].json()), operation.name
            assert OTHER not in answers[1].text


async def test_a_message_that_no_node_has_signed_is_neither_answered_nor_carried_out(world: World) -> None:
    everything = Principal(role=Role.OWNER, token_id="t_forged", workspace_id=None)
    operation = {"operation": "register_crew", "principal": everything.model_dump(mode="json"), "run": None, "seen": 0}
    decision = operation | {"raw": {"crew_id": "forged", "name": "forged", "workspace_id": world.mine.workspace}}
    search = operation | {"operation": "recall", "raw": {"query": "press", "workspace_id": world.mine.workspace}}
    near = {"near": {"kind": "entry", "workspace_id": world.mine.workspace}, "seen": 0}
    broker = world.broker
    client = await connect(broker.url, broker.user, broker.password, "forger")
    try:
        for subject, value in (("op.b", decision), ("op.b", search), ("op.b", near), ("drain.b", {"drained": True})):
            for signature in (b"", bytes(32)):
                with suppress(NatsError, TimeoutError):
                    answer = await client.request(subject, signature + orjson.dumps(value), timeout=UNANSWERED_S)
                    pytest.fail(f"{subject} answered {answer.data!r}")
        async with client_of(world.nodes["a"]) as owner:
            assert not any(node.drained for node in (await owner.cluster()).nodes)
            assert "forged" not in [
                crew.crew_id for crew in (await owner.crews(workspace_id=world.mine.workspace)).crews
            ]
    finally:
        await client.close()
