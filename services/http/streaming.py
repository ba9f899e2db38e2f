"""Answers that go on: server-sent events and lines of JSON.

Invariant: whatever ends the answer also ends, at once, the use-case that feeds it. A client that neither reads nor leaves is
cut by ``connections``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Send


class Stream(StreamingResponse):
    """Sends what ``pieces`` yields until it ends or the client leaves."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        """Send all, then close the generator."""
        async with aclosing(self._pieces):
            await super().stream_response(send)
