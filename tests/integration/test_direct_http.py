"""The model server's HTTP transport against a real socket that answers in all ways HTTP/1.1 knows, and some others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from json import JSONDecodeError

import httpx
import pytest

from crew_journal.consumers.adapters.direct_http import ANSWERED, DirectTransport, is_loopback

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BODY = b'{"embeddings": [[0.5, -1e-3]]}'
FULL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Server:
    """Counts connections; ``answers`` are given in order, the last one for ever, each after a whole request."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self.answers = list(answers)
        self.closes = closes
        self.connections = 0
        self.gone = asyncio.Event()
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(httpx.Headers([_pair(line) for line in head.split(b"\r\n")[1:-2]])["content-length"])
                self.requests.append(head + await reader.readexactly(length))
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


def _pair(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b": ")
    return name, value


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, httpx.AsyncClient(transport=DirectTransport(), base_url=server.url) as client:
        yield client


async def test_requests_one_after_the_other_share_a_connection() -> None:
    server = Server(FULL)
    async with running(server) as client:
        for n in range(3):
            answer = await client.post("/api/embed", json={"n": n})
            assert answer.status_code == 200
            assert answer.json() == {"embeddings": [[0.5, -0.001]]}
            assert answer.request.extensions[ANSWERED]
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /api/embed HTTP/1.1\r\n")
    assert server.requests[2].endswith(b'\r\n\r\n{"n":2}')


async def test_requests_at_once_have_a_connection_each() -> None:
    server = Server(FULL)
    async with running(server) as client:
        answers = await asyncio.gather(*(client.post("/", json={}) for _ in range(3)))
    assert [answer.content for answer in answers] == [BODY] * 3
    assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
        + BODY[:5]
        + b"\r\n%x\r\n" % (len(BODY) - 5)
        + BODY[5:]
        + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + FULL,
        FULL.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    ],
    ids=["chunked", "continue first", "closing", "until the end of the connection"],
)
async def test_every_kind_of_body_arrives_whole_and_a_closed_connection_is_replaced(answer: bytes) -> None:
    server = Server(answer, closes=True)
    async with running(server) as client:
        for _ in range(2):
            assert (await client.post("/", json={})).content == BODY
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "answered"),
    [(b"", False), (b"HTTP/1.1 200 O", False), (FULL[:-3], True), (b"no HTTP at all\r\n\r\n", False)],
    ids=["nothing", "half a head", "half a body", "another protocol"],
)
async def test_an_answer_that_breaks_off_is_a_protocol_error_and_says_whether_it_had_begun(
    answer: bytes, answered: bool
) -> None:
    server = Server(answer, closes=True)
    async with running(server) as client:
        with pytest.raises(httpx.RemoteProtocolError) as caught:
            await client.post("/", json={})
        assert bool(caught.value.request.extensions.get(ANSWERED)) is answered


async def test_nobody_listening_is_a_connect_error() -> None:
    server = Server(FULL)
    async with running(server):
        pass
    async with httpx.AsyncClient(transport=DirectTransport()) as client:
        with pytest.raises(httpx.ConnectError):
            await client.post(server.url, json={})


async def test_whoever_gives_up_takes_the_connection_with_him() -> None:
    server = Server(b"")
    async with running(server) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.post("/", json={})
        await server.gone.wait()
        server.answers = [FULL]
        assert (await client.post("/", json={})).content == BODY
    assert server.connections == 2


async def test_what_comes_unasked_is_not_taken_for_the_next_answer() -> None:
    server = Server(FULL + FULL.replace(BODY, BODY.replace(b"0.5", b"9.9")), FULL)
    async with running(server) as client:
        for _ in range(2):
            assert (await client.post("/", json={})).content == BODY
    assert server.connections == 2


async def test_no_header_breaks_out_of_its_line() -> None:
    server = Server(FULL)
    async with running(server) as client:
        with pytest.raises(httpx.LocalProtocolError):
            await client.post("/", json={}, headers={"X-Model": "a\r\nX-Other: b"})
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"n": [Infinity, 1e400]}', {"n": [math.inf, math.inf]}),
        ('{"n": "ü"}'.encode("utf-16"), {"n": "ü"}),
        (b"<html>", None),
        (b"", None),
    ],
    ids=["a number that is none", "another encoding", "no JSON", "nothing"],
)
async def test_json_is_read_as_pythons_reader_reads_it(body: bytes, expected: object) -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    async with running(server) as client:
        answer = await client.post("/", json={})
    if expected is not None:
        assert answer.json() == expected
        return
    with pytest.raises(JSONDecodeError):
        answer.json()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:11434", True),
        ("localhost", True),
        ("[::1]:80", True),
        ("10.0.0.1", False),
        ("ollama.example", False),
    ],
)
def test_only_this_machine_is_asked_directly(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
