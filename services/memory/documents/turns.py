"""Who may write a document at the same time: appends together, what gives the whole text alone.

Invariant: while one writes alone, nobody else does; appends wait for no append.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
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
        """Write while nobody else does; those that come meanwhile wait."""
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
