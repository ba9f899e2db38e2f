"""The order of writes of one document: appends run together, a write of the whole text runs alone.

Invariant: while a write of the whole text runs, no other write does; an append does not wait for another append.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WriteTurns:
    """The turns of one document on this node."""

    def __init__(self) -> None:
        self._together = 0
        self._left = asyncio.Event()
        self._alone: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Write at the same time as others that do so."""
        while self._alone is not None:
            await asyncio.shield(self._alone)
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self._left.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Write while no other write runs; later writes wait."""
        while self._alone is not None:
            await asyncio.shield(self._alone)
        mine = self._alone = asyncio.get_running_loop().create_future()
        try:
            while self._together:
                self._left.clear()
                await self._left.wait()
            yield
        finally:
            self._alone = None
            mine.set_result(None)
