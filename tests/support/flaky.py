"""A TCP proxy that loses answers or connections, or holds all bytes back, when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PIECE = 65_536


@dataclass
class Flaky:
    """The proxy.

    Attributes:
        url: Where it listens.
        lose_answers: So many answers are lost: the service did it, the client never hears.
        requests: Connections taken.
        passes: Cleared while it holds back all bytes, which then arrive late.
    """

    url: str = ""
    lose_answers: int = 0
    requests: int = 0
    passes: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.passes.set()

    def break_connections(self) -> None:
        """Break every connection at once."""
        for writer in self._open:
            writer.transport.abort()

    async def carry(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        self.requests += 1
        try:
            above_reader, above = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        self._open.add(writer)
        up = asyncio.create_task(self._pump(reader, above, answers=False))
        down = asyncio.create_task(self._pump(above_reader, writer, answers=True))
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        self._open.discard(writer)
        for end in (writer, above):
            end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(PIECE):
                if answers and self.lose_answers > 0:
                    self.lose_answers -= 1
                    return
                await self.passes.wait()
                sink.write(piece)
                await sink.drain()


@asynccontextmanager
async def flaky_proxy(url: str) -> AsyncIterator[Flaky]:
    """A proxy before the service at ``url``; its own URL has the same scheme."""
    parts = urlsplit(url)
    proxy = Flaky()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.carry(parts.hostname or "", parts.port or 0, reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.url = f"{parts.scheme}://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.break_connections()
