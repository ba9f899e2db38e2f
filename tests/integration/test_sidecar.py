"""The sidecar: the curls of an agent on loopback without a token, and nothing for anyone else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.core.principal import Role
from crew_journal.services.cli.connection import Target
from crew_journal.services.cli.sidecar_server import MAX_BODY_BYTES, ActingAgent, Listen, Sidecar, listen_of

SEED_CURLS = """
curl -sX POST localhost:9119/memory/search -d '{"query": "PostgreSQL migration strategy", "scope": "both", "limit": 5}'
curl localhost:9119/memory/search -d '{"query": "PostgreSQL", "scope": "agent"}'
curl localhost:9119/memory/search -d '{"query": "deployment", "scope": "crew"}'
curl localhost:9119/memory/search -d '{"query": "database", "scope": "both"}'
curl "localhost:9119/memory/status?scope=agent"
curl -X POST "localhost:9119/memory/reindex?scope=crew"
curl localhost:9119/memory/write -d '{"tier": "AGENT", "mode": "append", "content": "- prefers PostgreSQL 16"}'
""".strip().splitlines()


@contextmanager
def running(stack: Stack, token: str | None = None, crew: str | None = "core", url: str | None = None) -> Iterator[str]:
    """A sidecar of agent ada; gives its address."""
    there = Target(url or stack.url, token or stack.owner, None)
    server = Sidecar(Listen("127.0.0.1", 0), ActingAgent("ada", crew, "acme" if token is None else None), lambda: there)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture(scope="module")
async def filled(stack: Stack) -> Stack:
    async with stack.client() as owner:

        async def write(tier: str, content: str, **of: str) -> None:
            await owner.document_write(tier, "replace", content, workspace_id="acme", **of)  # type: ignore[arg-type]

        await write("AGENT", "- likes PostgreSQL migrations\n", agent_id="ada")
        await write("AGENT", "- PostgreSQL of another\n", agent_id="bruno")
        await write("CREW", "- deployment by Helm, database PostgreSQL\n", crew_id="core")
    return stack


async def ask(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        return await http.request(method, path, headers=headers, **more)


@pytest.mark.parametrize("line", SEED_CURLS)
async def test_the_curls_of_the_seed_answer_without_a_token(filled: Stack, line: str) -> None:
    with running(filled) as url:
        here = line.replace("localhost:9119", url.replace("127.0.0.1", "localhost").removeprefix("http://"))
        curl = await asyncio.create_subprocess_shell(f"{here} --noproxy '*'", stdout=asyncio.subprocess.PIPE)
        out, _ = await curl.communicate()
    answer = json.loads(out)
    if "search" in line:
        assert answer["count"] >= 1, answer
        assert all("another" not in hit["snippet"] for hit in answer["results"])
    elif "write" in line:
        assert answer["id"] == "AGENT.md", answer
        assert answer["owner"] == "a-ada"
    else:
        assert answer["total_files"] >= 1, answer  # other tests of the module write documents, too
        assert answer["search_ready"] is True


@pytest.mark.parametrize("role", [Role.AGENT, Role.LEAD])
async def test_an_agent_s_token_works_as_it_is(filled: Stack, role: Role) -> None:
    token = (await filled.token(role, "acme", agent="ada", crew="core")).plaintext
    with running(filled, token) as url:
        found = await ask(url, "POST", "/memory/search", json={"query": "deployment", "scope": "crew"})
    assert [hit["file"] for hit in found.json()["results"]] == ["CREW.md"]


async def test_an_owner_s_token_can_do_no_more_than_the_agent(filled: Stack) -> None:
    with running(filled) as url:

        async def write(**body: Any) -> int:
            body = {"mode": "append", "content": "- x", **body}
            return (await ask(url, "POST", "/memory/write", json=body)).status_code

        assert await write(tier="pins") == 403
        assert await write(tier="PERSONA", scope="agent") == 403
        assert await write(tier="WORKSPACE") == 403
        assert await write(tier="CREW") == 403
        assert await write(tier="AGENT", agent_id="bruno") == 403
        assert await write(tier="AGENT", workspace_id="other") == 403
        assert await write(tier="nothing") == 422
        assert await write(tier="daily") == 201


async def test_a_registered_lead_writes_for_its_crew_and_memory_that_is_off_is_off(filled: Stack) -> None:
    async with filled.client() as owner:
        await owner.register_agent("ada", role="lead", memory_enabled=True, workspace_id="acme")
        body = {"tier": "topics", "key": "deployment", "mode": "append", "content": "- Helm 3"}
        with running(filled) as url:
            assert (await ask(url, "POST", "/memory/write", json=body)).status_code == 201
        await owner.update_agent("ada", memory_enabled=False, workspace_id="acme")
        with running(filled) as url:
            refused = await ask(url, "POST", "/memory/search", json={"query": "Helm"})
        await owner.update_agent("ada", role="agent", memory_enabled=True, workspace_id="acme")
    assert refused.status_code == 403
    assert "is off" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:9120"}, 403),
        ({"Host": "10.0.0.7:9120"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "[::1]:9120"}, 200),
        ({"Host": "LOCALHOST:9120"}, 200),
    ],
)
async def test_another_host_or_origin_than_this_machine_is_refused(
    filled: Stack, headers: Mapping[str, str], status: int
) -> None:
    with running(filled) as url:
        answer = await ask(url, "GET", "/memory/status", headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


async def test_only_four_routes_and_bodies_of_up_to_one_mebibyte_are_forwarded(filled: Stack) -> None:
    with running(filled) as url:
        for method, path, status in (
            ("GET", "/v1/status", 404),
            ("POST", "/v1/journal", 404),
            ("GET", "/memory/../v1/status", 404),
            ("GET", "/memory/search", 405),
            ("POST", "/memory/status", 405),
        ):
            assert (await ask(url, method, path)).status_code == status, path
        too_large = await ask(url, "POST", "/memory/write", content=b"x" * (MAX_BODY_BYTES + 1))
        assert too_large.status_code == 413
        assert (await ask(url, "POST", "/memory/search", content=b"[1]")).status_code == 400
        assert (await ask(url, "POST", "/memory/search", json={})).status_code == 400


async def test_without_a_crew_or_a_service_it_says_so(filled: Stack) -> None:
    with running(filled, crew=None) as url:
        assert (await ask(url, "POST", "/memory/search", json={"query": "x", "scope": "crew"})).status_code == 503
        assert (await ask(url, "POST", "/memory/search", json={"query": "x", "scope": "both"})).status_code == 200
    with running(filled, url="http://127.0.0.1:9") as url:
        answer = await ask(url, "GET", "/memory/status")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")


@pytest.mark.parametrize("address", ["0.0.0.0:9120", "192.168.1.2:9120", "[::]:9120", "example.org:9120", "9120"])
def test_it_listens_on_loopback_only(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery):
        listen_of(address)
    assert listen_of("localhost:9120") == Listen("127.0.0.1", 9120)
    assert listen_of("[::1]:9120") == Listen("::1", 9120)
