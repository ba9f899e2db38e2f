"""uvicorn inside our own event loop: started and stopped by the runtime, which owns the signals.

Invariant: ``start`` returns only when connections are accepted, on a socket bound here (so port 0 is known); ``stop`` ends
live tails first, then waits a bounded time for requests in hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ...schemas.errors import InvalidQuery, Unavailable
from ..parts import Part
from .connections import BoundedProtocol, ConnectionBounds

BACKLOG: Final = 512
DRAIN_S: Final = 5
"""Seconds for requests in hand when the service ends."""
_POLL_S: Final = 0.01


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals are the runtime's: it drains the consumers too


class HttpServer(Part):
    """A running HTTP server.

    Args:
        app: The application.
        address: ``HOST:PORT``; port 0 picks one. An IPv6 host is written in brackets.
        before_stop: Ends what would not end by itself (live tails).
        bounds: What a connection may cost before a token is shown.
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
            timeout_notify=0,  # whenever uvicorn looks at all: once a second
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
        """Connections open now."""
        return [
            connection
            for connection in self._server.server_state.connections
            if isinstance(connection, BoundedProtocol)
        ]

    @property
    def tasks(self) -> int:
        """Requests that are being answered now."""
        return len(self._server.server_state.tasks)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in self.connections:
            connection.look(now)

    @property
    def url(self) -> str:
        """Where it is reached; known after ``start``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Bind, then accept connections.

        Raises:
            Unavailable: If the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY on this alone
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
        """End live tails, finish requests in hand, close."""
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
