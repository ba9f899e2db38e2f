"""What holds for every route: tokens, problems, headers, hosts, figures."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from starlette.routing import Route
from support.stack import HTTP_TIMEOUT_S, Stack

from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.settings import Settings
from crew_journal.services.http.app import MCP_ROUTES, SECURITY_HEADERS, App
from crew_journal.services.http.route import HttpLimits
from crew_journal.services.http.routes_memory_stores import MEMORY_STORE_ROUTES
from crew_journal.services.http.routes_status import POLICY as DOCS_POLICY
from crew_journal.services.http.routes_status import example_of, render_docs

OPEN = {"/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"}


def _routes(stack: Stack) -> list[tuple[str, str]]:
    paths = App(stack.services).openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def _filled(path: str) -> str:
    return (
        path.replace("{entry_id}", "x").replace("{seq}", "1").replace("{decision}", "retry").replace("{token_id}", "x")
    )


@pytest.mark.parametrize(
    "header", [None, "Basic abc", "Bearer", "Bearer cj_short", "Bearer cj_" + "A" * 43, "Bearer x y"]
)
async def test_every_route_but_the_open_ones_asks_for_a_token(stack: Stack, header: str | None) -> None:
    routes = _routes(stack)
    assert ("POST", "/v1/recall") in routes
    async with httpx.AsyncClient(base_url=stack.url, timeout=HTTP_TIMEOUT_S) as http:
        for method, path in routes if header is None else routes[::8]:  # test_matrix sends wrong tokens to all of them
            answer = await http.request(method, _filled(path), headers={"Authorization": header} if header else {})
            if path in OPEN:
                assert answer.status_code == 200
                continue
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["title"] == "Not authenticated"


async def test_agents_and_leads_reach_no_route_of_administration(stack: Stack) -> None:
    tokens = [
        await stack.token(Role.AGENT, "acme", agent="ada", crew="core"),
        await stack.token(Role.LEAD, "acme", agent="liz", crew="core"),
    ]
    for token in tokens:
        async with stack.http(token.plaintext) as http:
            for method, path in _routes(stack):
                if path.startswith("/v1/admin"):
                    answer = await http.request(method, _filled(path))
                    assert answer.status_code == 403, (method, path)


async def test_what_concerns_the_whole_node_needs_a_token_of_all_workspaces(stack: Stack) -> None:
    admin = await stack.token(Role.ADMIN, "acme")
    async with stack.http(admin.plaintext) as http:
        for method, path in (("POST", "rebuild"), ("POST", "verify"), ("GET", "broker")):
            assert (await http.request(method, f"/v1/admin/{path}")).status_code == 403
        assert (await http.get("/v1/admin/dlq")).status_code == 200
        assert (await http.get("/v1/admin/dlq", params={"workspace_id": "other"})).status_code == 403


async def test_every_answer_bears_the_security_headers_and_a_trace_id(stack: Stack) -> None:
    async with stack.http() as http:
        for path in ("/healthz", "/v1/journal", "/nowhere", "/docs", "/v1/journal?limit=0"):
            answer = await http.get(path)
            for name, value in SECURITY_HEADERS.items():
                own = path == "/docs" and name == "Content-Security-Policy"
                assert answer.headers[name] == (DOCS_POLICY if own else value), (path, name)
            assert len(answer.headers["x-trace-id"]) == 32
        trace = "0af7651916cd43dd8448eb211c80319c"
        given = await http.get("/healthz", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        assert given.headers["x-trace-id"] == trace


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1].evil", "[evil]:1"]
)
async def test_another_host_name_is_refused_before_any_route(stack: Stack, host: str) -> None:
    async with stack.http() as http:
        answer = await http.get("/healthz", headers={"Host": host})
        assert answer.status_code == 421
        assert answer.json()["title"] == "Wrong host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9119", "127.0.0.1", "[::1]:9119", "192.0.2.7:80"])
async def test_loopback_names_and_addresses_are_accepted_with_any_port(stack: Stack, host: str) -> None:
    async with stack.http() as http:
        assert (await http.get("/healthz", headers={"Host": host})).status_code == 200


def test_the_accepted_names_follow_from_the_settings() -> None:
    limits = HttpLimits.of(Settings(http="Journal.example:9119", http_hosts="memory.example, "))
    assert limits.hosts == {"localhost", "journal.example", "memory.example"}


async def test_an_unknown_route_and_a_wrong_method_are_problems(stack: Stack) -> None:
    async with stack.http() as http:
        missing = await http.get("/v2/anything")
        assert missing.status_code == 404
        assert missing.headers["content-type"] == "application/problem+json"
        wrong = await http.delete("/v1/journal")
        assert wrong.status_code == 405
        assert wrong.headers["content-type"] == "application/problem+json"
        assert "trace_id" in wrong.json()
        assert wrong.headers["allow"] == "GET, HEAD, POST"
        assert wrong.json()["hint"] == "use GET, HEAD, POST"


async def test_an_unexpected_fault_says_nothing_of_the_inside(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    async def explode(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("secret /home/path SELECT *")

    monkeypatch.setattr(stack.services.status, "embedder", explode)
    async with stack.http() as http:
        answer = await http.get("/v1/admin/embedder")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert answer.json()["trace_id"] in answer.json()["hint"]


async def test_readiness_tells_every_reason(stack: Stack) -> None:
    async with httpx.AsyncClient(base_url=stack.url, timeout=HTTP_TIMEOUT_S) as http:
        assert (await http.get("/readyz")).json() == {"ready": True, "reasons": []}
        stack.node.reasons.update(broker="the broker is away", disk="the disk is full")
        try:
            answer = await http.get("/readyz")
        finally:
            stack.node.reasons.clear()
        assert answer.status_code == 503
        assert answer.json()["reasons"] == ["the broker is away", "the disk is full"]
        assert (await http.get("/healthz")).status_code == 200


async def test_metrics_name_routes_but_no_ids(stack: Stack) -> None:
    async with stack.http() as http:
        await http.get("/v1/journal/some-very-special-id", params={"workspace_id": "special-workspace"})
        text = (await http.get("/metrics")).text
    assert 'route="/v1/journal/{entry_id}"' in text
    assert "special" not in text
    assert "crew_journal_stream_head 7.0" in text
    assert "crew_journal_http_tails 0.0" in text


async def test_status_shows_a_bound_token_its_workspace_only(stack: Stack) -> None:
    agent = await stack.token(Role.AGENT, "acme", agent="ada", crew="core")
    async with stack.http(agent.plaintext) as http:
        own = (await http.get("/v1/status")).json()
        assert (own["workspace_id"], "stream" in own) == ("acme", False)
        assert (await http.get("/v1/status", params={"workspace_id": "other"})).status_code == 403
    for role in (Role.ADMIN, Role.OWNER):
        async with stack.http((await stack.token(role, "acme")).plaintext) as http:
            own = (await http.get("/v1/status")).json()
            assert (own["workspace_id"], "stream" in own) == ("acme", False)
    async with stack.http() as http:
        whole = (await http.get("/v1/status")).json()
        assert (whole["workspace_id"], whole["stream"]) == (None, {"head": 7})
        assert (await http.get("/v1/status", params={"workspace_id": "w"})).json()["workspace_id"] == "w"


async def test_the_docs_page_names_every_route_and_loads_nothing(stack: Stack) -> None:
    app = App(stack.services)
    page = render_docs(app.openapi())
    undescribed = {"/docs", "/openapi.json", *(one.path for one in (*MCP_ROUTES, *MEMORY_STORE_ROUTES))}
    for route in app.routes:
        if isinstance(route, Route) and route.path not in undescribed:
            assert route.path in page
    assert "http://" not in page
    assert "https://" not in page
    assert "`" not in re.sub(r"<textarea.*?</textarea>", "", page, flags=re.DOTALL)
    assert "<code>default</code>" in page
    assert re.findall(r"<script[^>]*>", page) == ['<script src="/ui/static/docs.js" defer>']


async def test_the_docs_page_has_a_form_with_an_example_for_every_body_and_escapes_all_text(stack: Stack) -> None:
    app = App(stack.services)
    described = app.openapi()
    page = render_docs(described)
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert f'<form data-method="{method.upper()}" data-path="{path}">' in page
            for content in route.get("requestBody", {}).get("content", {}).values():
                assert content["schema"].get("required", []) == [] or example_of(content), path
    assert "Nightly restore drill passed" in page
    hostile = "</textarea><script>alert(1)</script>\" onfocus=alert(1) '"
    parameter = {"name": hostile, "in": hostile, "description": hostile}
    body = {"content": {"application/json": {"schema": {}, "example": {hostile: hostile}}}}
    route = {"summary": hostile, "description": hostile, "parameters": [parameter], "requestBody": body}
    written = render_docs({"info": {"title": hostile, "version": hostile}, "paths": {hostile: {hostile: route}}})
    assert "<script>" not in written
    assert '" onfocus' not in written
    async with stack.http() as http:
        policy = (await http.get("/docs")).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")


async def test_a_connection_that_sends_no_http_is_closed(stack: Stack) -> None:
    host, port = stack.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x00\x01\x02 nonsense\r\n\r\n")
    async with asyncio.timeout(60):
        assert (await reader.read(100)).startswith(b"HTTP/1.1 400")
    writer.close()
