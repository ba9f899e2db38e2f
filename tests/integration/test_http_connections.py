"""What a connection may cost before a token is shown, over real sockets; no broker is needed for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from crew_journal.services.http.app import Edge
from crew_journal.services.http.bodies import EXCEPTION_HANDLERS, BodyBudget, Share, answer, read_json
from crew_journal.services.http.routes_status import HttpMetrics
from crew_journal.services.http.server import HEAD_BYTES, HEADERS, PIPELINED, ConnectionBounds, HttpServer

DEADLINE_S = 60.0
GET = b"GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\n"
IMPATIENT = ConnectionBounds(connections=4, head_s=2.0, body_s=2.0, body_bytes_per_s=10, unread_s=2.0)
"""Long enough for a busy machine to read within it what was sent at once."""


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self) -> int:
        """Of the next answer; 0 if the connection is closed instead."""
        return (await self.answer())[0]

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(DEADLINE_S):
            try:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0, {}, None
            first, *lines = head.strip().splitlines()
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(first.split()[1]), headers, json.loads(body)

    async def closed(self) -> bytes:
        """What comes until the end."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()


@dataclass
class Service:
    server: HttpServer
    go_on: asyncio.Event
    entered: asyncio.Event
    app: Starlette
    proven: list[Request]
    connections: list[Connection] = field(default_factory=list)

    async def connect(self) -> Connection:
        host, port = self.server.url.removeprefix("http://").split(":")
        connection = Connection(*await asyncio.open_connection(host, int(port)))
        self.connections.append(connection)
        return connection


@asynccontextmanager
async def running(bounds: ConnectionBounds | None = None) -> AsyncIterator[Service]:
    go_on, entered = asyncio.Event(), asyncio.Event()
    proven: list[Request] = []

    async def ok(request: Request) -> Response:
        return answer({"path": request.url.path})

    async def body(request: Request) -> Response:
        return answer({"items": len(await read_json(request, 10_000_000))})

    async def with_token(request: Request) -> Response:
        request.state.share = Share(BodyBudget(100), "token")
        proven.append(request)
        return await body(request)

    async def unread(_request: Request) -> Response:
        return answer({}, 401)

    async def waits(_request: Request) -> Response:
        entered.set()
        await go_on.wait()
        return answer({"path": "/waits"})

    async def large(_request: Request) -> Response:
        return answer("x" * 50_000_000)

    gets = {"/first": ok, "/second": ok, "/waits": waits, "/large": large}
    app = Starlette(
        routes=[
            *(Route(path, endpoint) for path, endpoint in gets.items()),
            Route("/body", body, methods=["POST"]),
            Route("/ui/login", body, methods=["POST"]),
            Route("/proven", with_token, methods=["POST"]),
            Route("/unread", unread, methods=["POST"]),
        ],
        middleware=[Middleware(Edge, hosts=None, metrics=HttpMetrics())],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    server = HttpServer(app, "127.0.0.1:0", before_stop=go_on.set, bounds=bounds)
    await server.start()
    service = Service(server, go_on, entered, app, proven)
    try:
        yield service
    finally:
        for connection in service.connections:
            connection.writer.close()
        await server.stop()


@pytest.mark.parametrize(
    "head",
    [
        GET[:-2] + b"X-Long: " + b"a" * HEAD_BYTES,  # unfinished
        GET[:-2] + b"X-Long: " + b"a" * HEAD_BYTES + b"\r\n\r\n",
        b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET[:-2] + b"a: b\r\n" * (HEADERS + 1),
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;x=",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ",
    ],
)
async def test_a_head_that_is_too_large_is_refused_with_a_problem_before_it_ends(head: bytes) -> None:
    async with running() as service:
        connection = await service.connect()
        connection.send(head)
        if head.startswith(POST):
            await _until(lambda: bool(service.server.tasks))
            connection.send(b"a" * (HEAD_BYTES + 1))
        status, headers, problem = await connection.answer()
        assert (status, headers["content-type"]) == (431, "application/problem+json")
        assert problem["hint"]
        assert problem["trace_id"]
        assert await connection.closed() == b""


async def test_a_head_just_below_the_bound_and_a_large_body_behind_it_are_served() -> None:
    async with running() as service:
        connection = await service.connect()
        items = b"[" + b"1," * 400_000 + b"1]"
        head = POST + b"X-Long: " + b"a" * (HEAD_BYTES - 200) + b"\r\nContent-Length: %d\r\n\r\n" % len(items)
        connection.send(head + items)
        assert (await connection.answer())[2] == {"items": 400_001}


async def test_an_answer_is_sent_at_once_and_not_after_the_client_has_acked_its_head() -> None:
    async with running() as service:
        client = await service.connect()
        client.send(GET)
        assert await client.status() == 200
        (open_connection,) = service.server.connections
        accepted = open_connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "an answer of two writes takes 40 ms"


async def test_what_is_no_http_is_answered_with_a_problem() -> None:
    async with running() as service:
        connection = await service.connect()
        connection.send(b"\x16\x03\x01 nonsense\r\n\r\n")
        status, headers, problem = await connection.answer()
        assert (status, headers["content-type"]) == (400, "application/problem+json")
        assert "TLS" in problem["hint"]


async def test_a_request_that_stays_unfinished_is_cut_and_says_why_if_it_had_begun() -> None:
    async with running(IMPATIENT) as service:
        silent, half, blank = [await service.connect() for _ in range(3)]
        half.send(GET[:-2])
        assert blank.send(GET) is None
        assert await blank.status() == 200
        blank.send(b"\r\n")  # after an answer, too
        assert await half.status() == 408
        assert await silent.closed() == b""
        await blank.closed()


async def test_a_body_must_keep_its_rate_and_one_that_does_may_take_long() -> None:
    async with running(IMPATIENT) as service:
        slow, steady, refused, silent = [await service.connect() for _ in range(4)]
        slow.send(POST + b"Content-Length: 9999\r\n\r\n[")
        steady.send(POST + b"Content-Length: 1001\r\n\r\n[" + b" " * 999)  # a hundred seconds' worth
        refused.send(b"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n" + b" " * 999)
        assert await refused.status() == 401
        assert await slow.status() == 408
        assert await refused.closed() == b""  # what it sends is not wanted any more
        await silent.closed()
        steady.send(b"]")
        assert await steady.status() == 200


async def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    async with running(IMPATIENT) as service:
        connection = await service.connect()
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
        connection.send(GET.replace(b"/first", b"/large"))
        await _until(lambda: bool(service.server.connections))
        await _until(lambda: not service.server.connections)


async def test_a_new_connection_replaces_the_idle_one_that_waited_longest() -> None:
    async with running(ConnectionBounds(connections=4)) as service:
        busy = [await service.connect() for _ in range(2)]
        for connection in busy:
            connection.send(GET.replace(b"/first", b"/waits"))
        await service.entered.wait()
        oldest, newer = await service.connect(), await service.connect()
        newer.send(GET)
        assert await newer.status() == 200
        newest = await service.connect()
        newest.send(GET)
        assert await newest.status() == 200
        assert await oldest.status() == 0
        for connection in (newer, newest):
            connection.send(GET.replace(b"/first", b"/waits"))
        refused = await service.connect()
        status, headers, _ = await refused.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        service.go_on.set()
        assert [await connection.status() for connection in (*busy, newer, newest)] == [200] * 4


@pytest.mark.parametrize("path", [b"/body", b"/ui/login"])
async def test_a_thousand_unfinished_requests_without_a_token_leave_a_place_to_the_next_one(path: bytes) -> None:
    unfinished = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\ntoken=" % path
    async with running(ConnectionBounds(connections=64)) as service:
        answered = []
        for at in range(1_000):
            connection = await service.connect()
            connection.send(unfinished)
            if at % 50 == 49:
                health = await service.connect()
                health.send(GET)
                answered.append(await health.status())
        assert answered == [200] * 20
        assert len(service.server.connections) <= 64


async def test_an_unfinished_request_with_a_token_keeps_its_place() -> None:
    async with running(ConnectionBounds(connections=4)) as service:
        proven = [await service.connect() for _ in range(4)]
        for connection in proven:
            connection.send(POST.replace(b"/body", b"/proven") + b"Content-Length: 3\r\n\r\n[1")
        await _until(lambda: len(service.proven) == 4)
        refused = await service.connect()
        assert await refused.status() == 503
        for connection in proven:
            connection.send(b"]")
        assert [await connection.status() for connection in proven] == [200] * 4


async def test_pipelined_requests_are_answered_in_order_and_only_so_many_may_wait() -> None:
    async with running() as service:
        connection = await service.connect()
        connection.send(GET + GET.replace(b"/first", b"/second") + GET)
        assert [(await connection.answer())[2]["path"] for _ in range(3)] == ["/first", "/second", "/first"]
        connection.send(GET.replace(b"/first", b"/waits") + GET * (PIPELINED + 1))
        assert await connection.closed() == b""


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # nobody sets an event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 9999\r\n\r\n[",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n",
        GET.replace(b"/first", b"/large"),
        GET.replace(b"/first", b"/waits"),
    ],
)
async def test_a_client_that_leaves_is_no_error_in_the_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as service:
        with capture_logs() as logs:
            connection = await service.connect()
            connection.send(sent)
            await _until(lambda: bool(service.server.tasks) or b"/large" in sent)
            connection.writer.transport.abort()
            await _until(lambda: not service.server.connections)
            service.go_on.set()
            await _until(lambda: not service.server.tasks)
    assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
