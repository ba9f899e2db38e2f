"""HTTP/1.1 to one server on this machine in few turns of the event loop: an httpx transport for the model server.

Why: httpx's own transport takes some ten turns of the loop for a request (locks, checkpoints, head and body apart), and
while entries are written each turn waits for what else is due: a recall whose query is embedded took 7 ms longer than one
whose vector is remembered, nearly all of it on our side. Here a request is one write and one wake-up, and C reads the
answer. JSON is read by orjson: an answer of 64 vectors holds 25,000 numbers.

Invariant: what goes wrong is told by httpx's errors, as its own transport tells it. Time is bounded by the caller; here
only the connect is, by the time-out that the request bears.
"""

from __future__ import annotations

import asyncio
import ipaddress
import selectors
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson
from httptools import HttpParserError, HttpResponseParser

ANSWERED: Final = "crew_journal.answered"
"""Extension of a request whose answer began: what breaks after that broke in the middle of the answer."""
HTTP_PORT: Final = 80
IDLE_S: Final = 5.0
"""Seconds after which an unused connection is not used again; httpx's own default."""
_FIRST_FINAL: Final = 200
"""Statuses below are no answers yet (``100 Continue``)."""


class JsonResponse(httpx.Response):
    """A response whose JSON is read seven times faster: 0.25 ms for 20 vectors of 384 dimensions."""

    def json(self, **kwargs: Any) -> Any:
        """The body as JSON; what orjson refuses (``NaN``, another encoding) is judged by Python's reader, as httpx does."""
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:
            return super().json(**kwargs)


class DirectTransport(httpx.AsyncBaseTransport):
    """Posts to this machine directly; asks whatever else (after a redirect) by httpx's own transport."""

    def __init__(self) -> None:
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._elsewhere = httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request; see ``httpx.AsyncBaseTransport``."""
        url = request.url
        if url.scheme != "http" or request.method != "POST" or not is_loopback(url.netloc.decode()):
            return await self._elsewhere.handle_async_request(request)
        message = _head(request) + await request.aread()
        address = url.host, url.port or HTTP_PORT
        connection = self._reusable(address) or await _connect(address, request)
        self._busy.add(connection)
        try:
            status, headers, body = await connection.ask(message, request)
        finally:
            self._busy.discard(connection)
        if connection.usable:
            self._idle.append(connection)
        return JsonResponse(status, headers=headers, content=body, request=request)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        await self._elsewhere.aclose()

    def _reusable(self, address: tuple[str, int]) -> _Connection | None:
        """The connection used last; those that were closed meanwhile, or are of another server, are let go."""
        while self._idle:
            connection = self._idle.pop()
            if connection.address == address and connection.is_quiet():
                return connection
            connection.close()
        return None


async def _connect(address: tuple[str, int], request: httpx.Request) -> _Connection:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(request.extensions.get("timeout", {}).get("connect")):
            _, connection = await loop.create_connection(lambda: _Connection(address, loop), *address)
    except TimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error
    return connection


_Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, address: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._answer: asyncio.Future[_Answer] | None = None
        self._request: httpx.Request | None = None
        self._begun = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._ends_with_connection = False
        self._used_at = 0.0
        self.usable = True
        """Whether the server will take another request."""

    def is_quiet(self) -> bool:
        """Whether it was used lately and nothing came since: an end that our loop has not seen yet can be read already."""
        if not self.usable or self._transport is None or self._loop.time() - self._used_at > IDLE_S:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._transport.get_extra_info("socket"), selectors.EVENT_READ)
            return not selector.select(0)

    async def ask(self, message: bytes, request: httpx.Request) -> _Answer:
        """Send a request and return its whole answer; whatever goes wrong, the connection is of no more use."""
        assert self._transport is not None
        self._answer, self._request, self._begun = self._loop.create_future(), request, False
        try:
            self._transport.write(message)
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
            self._used_at = self._loop.time()

    def close(self) -> None:
        """Drop the connection."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of Transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked
            return
        self._begun = True
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if not self._begun and exc is None:
            self._fail(httpx.RemoteProtocolError("Server disconnected without sending a response."))
        elif self._ends_with_connection and exc is None:
            self.on_message_complete()
        elif exc is None:
            self._fail(httpx.RemoteProtocolError("peer closed connection without sending complete message body"))
        else:
            self._fail(httpx.ReadError(str(exc)))

    # httptools' parser

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # another answer than the one asked for
        self._headers, self._body = [], []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= _FIRST_FINAL and self._request is not None:
            self._request.extensions[ANSWERED] = True
            names = {name.lower() for name, _ in self._headers}
            self._ends_with_connection = not names & {b"content-length", b"transfer-encoding"}

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL or self._answer is None or self._answer.done():
            return
        self.usable = self.usable and self._parser.should_keep_alive() and not self._ends_with_connection
        if not self.usable:
            self.close()
        self._answer.set_result((status, self._headers, b"".join(self._body)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _head(request: httpx.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%b: %b" % pair for pair in request.headers.raw]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
        raise httpx.LocalProtocolError("a header holds a line break")
    return head + b"\r\n\r\n"


def is_loopback(host: str) -> bool:
    """Whether a server's address is of this machine, which no proxy reaches."""
    name = urlsplit(host if "://" in host else f"http://{host}").hostname or "localhost"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or address.is_unspecified
