"""Runs uvicorn in our event loop; the runtime, which handles signals, starts and stops it.

Invariant: ``start`` returns only when connections are accepted, on a socket bound here (so port 0 is known); ``stop``
ends live tails first, then waits a limited time for requests in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Final

import structlog
import uvicorn
from httptools import HttpParserError, HttpParserUpgrade
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...schemas.core.errors import InvalidQuery, Unavailable
from ...schemas.core.ids import uuid7_hex
from ...schemas.core.limits import REQUEST_BYTES
from ...schemas.settings import HTTP_CONNECTIONS
from ..parts import Part
from .bodies import problem_response

# Limits for connections before a token is checked: bytes of the head, seconds, number of connections.


HEAD_BYTES: Final = 32 * 1024
"""Maximum bytes of a request line with headers, or between two pieces of a body; nginx also accepts 32 KiB. A line of
200 MB cost 287 MB and 7 s of the event loop.
"""
HEADERS: Final = 100
"""Maximum headers of a request; our clients send 7. 6,500 short headers fit into ``HEAD_BYTES`` and take 1.3 MB."""
PIPELINED: Final = 32
"""Maximum pipelined requests of a connection, 3 KB each; 14,000 fit into one read."""
DISCARDED_BYTES: Final = REQUEST_BYTES
"""Maximum bytes of a body that are read and dropped after the answer, so that a client that sends before it reads sees
a 401; as much as our clients send at once. Dropping 64 MiB per connection kept the event loop busy.
"""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Limits that tests shorten.

    Attributes:
        connections: Maximum number of connections.
        head_s: Maximum seconds from the connection, or from the first byte of a request, to the end of the headers.
        body_s: Seconds that a body may take in addition to its bytes divided by ``body_bytes_per_s``; also the seconds
            for the rest of a body after the answer.
        body_bytes_per_s: Minimum rate of a body: the largest (32 MiB) must arrive within 35 minutes.
        unread_s: Maximum seconds in which a client reads nothing of an answer.
    """

    connections: int = HTTP_CONNECTIONS
    head_s: float = 10.0
    body_s: float = 10.0
    body_bytes_per_s: int = 16 * 1024
    unread_s: float = 30.0


_NOTHING: Final = 0
_HEAD: Final = 1
_BODY: Final = 2
"""States of a connection; integers, because looking up members of an enum for every request is slow."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol over a C parser, with limits; ``look`` is called once a second."""

    bounds: ClassVar[ConnectionBounds] = ConnectionBounds()

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._awaits = _HEAD
        self.since = self.loop.time()  # start of the current state; for an idle connection the time of its last answer
        self._unparsed = 0  # bytes since the parser last returned a head, a piece of a body, or an end
        self._body = 0
        self._unread = 0
        self._unread_since = self.since
        self._answering: RequestResponseCycle | None = None
        self._refusal: tuple[HTTPStatus, str, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Register the connection; at the limit, close the connection that has waited longest for a request or its rest."""
        super().connection_made(transport)
        if len(self.connections) <= self.bounds.connections:
            return
        open_now = [other for other in self.connections if isinstance(other, BoundedProtocol)]
        longest = min((other for other in open_now if other.rests or other.is_unproven), key=lambda other: other.since)
        if longest is self:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"all {self.bounds.connections} connections are in use",
                "try again later, or keep fewer open (CREW_JOURNAL_HTTP_CONNECTIONS)",
            )
        else:
            longest.transport.abort()
            self.connections.discard(longest)

    @property
    def rests(self) -> bool:
        """Whether the connection is idle."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    @property
    def is_unproven(self) -> bool:
        """Whether the connection waits for the rest of a request without a checked token."""
        return self._awaits == _BODY and "share" not in self.cycle.scope.get("state", ())

    # what arrives

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse a head, or an unfinished piece of a body, that is too large."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        for first in range(0, len(data), HEAD_BYTES):  # one read has up to 256 KiB: 43,000 short headers take 40 ms
            if not self._is_parsed(data[first : first + HEAD_BYTES]):
                return

    def _is_parsed(self, data: bytes) -> bool:
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # another protocol was offered; the request is answered in this one
        except HttpParserError:
            self._refuse(*(self._refusal or _NO_HTTP))
            return False
        if self._unparsed:
            if self._awaits == _NOTHING:
                self._awaits, self.since = _HEAD, self.loop.time()
            if self._unparsed > HEAD_BYTES or len(self.headers or ()) > HEADERS:
                self._refuse(*_TOO_LARGE)
                return False
        return not self.transport.is_closing()

    def on_headers_complete(self) -> None:
        """Start a request, unless its head or the number of waiting requests is too large."""
        if len(self.headers) > HEADERS or (
            self._unparsed > HEAD_BYTES
            and len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES
        ):
            self._refusal = _TOO_LARGE
            raise ValueError("the head is too large")
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests wait")
        self._unparsed = self._body = 0
        self._awaits, self.since = _BODY, self.loop.time()
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body for the application, or drop it if the request is answered."""
        self._unparsed = 0
        self._body += len(body)
        super().on_body(body)
        if self._body > DISCARDED_BYTES and self.cycle.response_complete:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """Note that the request is complete: the client now waits for the answer."""
        self._unparsed = 0
        self._awaits = _NOTHING
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Release an unread body; the time of a pipelined request starts now."""
        self.since = self.loop.time()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the current request; uvicorn does not if other requests wait, and their answers then fail."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    # what does not arrive

    def look(self, now: float) -> None:
        """Close the connection if the client is too slow to send or to read."""
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > self.bounds.unread_s:
            self.transport.abort()
        if self._awaits == _HEAD and now - self.since > self.bounds.head_s:
            if self._unparsed:
                self._refuse(*_HEAD_LATE)
            else:
                self.transport.close()  # there is no open request
        elif self._awaits == _BODY and not self.pipeline:
            earned = 0 if self.rests else self._body / self.bounds.body_bytes_per_s
            if now - self.since > self.bounds.body_s + earned:
                self._refuse(*_BODY_LATE)

    def _refuse(self, status: HTTPStatus, detail: str, hint: str) -> None:
        """Answer with a problem, if the client can assign it to this request, and close."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        reading = self._awaits == _BODY and not self.pipeline
        if cycle is None or (cycle.response_complete and not reading) or (reading and not cycle.response_started):
            retry = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
            problem = problem_response(
                status, status.phrase, detail, hint, uuid7_hex(), {"Connection": "close", **retry}
            )
            head = b"HTTP/1.1 %d %s" % (status, status.phrase.encode())
            lines = (b"%s: %s" % header for header in problem.raw_headers)
            self.transport.write(b"\r\n".join((head, *lines, b"", bytes(problem.body))))
        if self._answering is not None:
            self._answering.disconnected = True  # further output of the application is not sent
        self.transport.close()
        log.info("http.refused", status=int(status), reason=detail)


log = structlog.get_logger(__name__)
_TOO_LARGE: Final = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"the head of the request has more than {HEAD_BYTES} bytes or {HEADERS} headers",
    "send fewer or shorter headers; entries and questions belong in the body",
)
_NO_HTTP: Final = (HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1", "use HTTP/1.1, without TLS")
_HEAD_LATE: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    "the headers of the request did not arrive in time",
    "send the request again, with all its headers at once",
)
_BODY_LATE: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    "the body of the request did not arrive in time",
    "send the request again, in smaller parts",
)

BACKLOG: Final = 512
DRAIN_S: Final = 5
"""Seconds to wait for requests in progress when the service ends."""
_POLL_S: Final = 0.01


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # the runtime handles signals, because it also drains the consumers


class HttpServer(Part):
    """A running HTTP server.

    Args:
        app: The application.
        address: ``HOST:PORT``; port 0 picks one. An IPv6 host is written in brackets.
        before_stop: Ends requests that would not end by themselves (live tails).
        bounds: Limits of connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        *,
        before_stop: Callable[[], None],
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._host, self._port = parse_address(address)
        self._before_stop = before_stop
        config = uvicorn.Config(
            app,
            http=type("Protocol", (BoundedProtocol,), {"bounds": bounds or ConnectionBounds()}),
            callback_notify=self._look,
            timeout_notify=0,  # at each of uvicorn's checks, once a second
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=DRAIN_S,
            timeout_keep_alive=30,
            ws="none",
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    @property
    def connections(self) -> list[BoundedProtocol]:
        """The open connections."""
        return [
            connection
            for connection in self._server.server_state.connections
            if isinstance(connection, BoundedProtocol)
        ]

    @property
    def tasks(self) -> int:
        """The number of requests in progress."""
        return len(self._server.server_state.tasks)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in self.connections:
            connection.look(now)

    @property
    def url(self) -> str:
        """The URL; known after ``start``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Bind, then accept connections.

        Raises:
            Unavailable: If the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # asyncio sets TCP_NODELAY only on such a socket
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._host, self._port))
            bound.listen(BACKLOG)
        except OSError as error:
            bound.close()
            raise Unavailable(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}", hint="choose another with --http"
            ) from error
        bound.setblocking(False)
        self._port = bound.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]), name="http-server")
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise Unavailable("the HTTP server ended while starting")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """End live tails, finish requests in progress, close."""
        if self._serving is None:
            return
        self._before_stop()
        self._server.should_exit = True
        await self._serving
        self._serving = None


def parse_address(address: str) -> tuple[str, int]:
    """``HOST:PORT`` as its parts.

    Raises:
        InvalidQuery: If it is not an address.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidQuery(f"{address!r} is not HOST:PORT", hint="write it like 127.0.0.1:9119", field="http")
    return host, int(port)
