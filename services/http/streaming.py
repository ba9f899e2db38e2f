"""Answers that go on: server-sent events and lines of JSON.

Invariant: a client that neither reads nor leaves holds one piece in memory for a bounded time, then its stream is closed;
whatever ends the answer also ends, at once, the use-case that feeds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

log = structlog.get_logger(__name__)


class BoundedStream(Response):
    """Sends what ``pieces`` yields until it ends, the client leaves, or the client stops reading.

    Args:
        pieces: Bytes to send.
        media_type: Their type.
        send_timeout_s: Seconds one piece may take.
    """

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str, send_timeout_s: float) -> None:
        self._pieces = pieces
        self._send_timeout_s = send_timeout_s
        super().__init__(media_type=media_type)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(results[0], TimeoutError):
            log.info("http.stream_cut", reason="the client does not read")
        elif isinstance(results[0], Exception):
            raise results[0]

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in self._pieces:
                async with asyncio.timeout(self._send_timeout_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
