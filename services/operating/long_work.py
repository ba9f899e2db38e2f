"""What takes long on a running node: rebuild and verify.

Invariant: one long operation at a time, under one lock; progress is reported as it happens and the last record holds the
result. The parts are handed in, so this module knows neither DuckDB nor the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...schemas.errors import Unavailable
from .status import as_json

Progress = Callable[[int, int], None]
Work = Callable[[Progress], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class OperationParts:
    """What the operations are made of; handed in by the composition root.

    Attributes:
        rebuild: ``(names or None, accept a loss, token of the caller, progress)`` → the result.
        verify: ``(progress)`` → the result with ``equal``.
        salvage: ``(progress)`` → a record for each lost entry, the last with ``result``.
        embedder: The embedder and its last outcome.
    """

    rebuild: Callable[[Sequence[str] | None, bool, str | None, Progress], Awaitable[Mapping[str, Any]]]
    verify: Callable[[Progress], Awaitable[Mapping[str, Any]]]
    salvage: Callable[[Progress], AsyncIterator[Mapping[str, Any]]]
    embedder: Callable[[], Mapping[str, Any]]


class Operations:
    """Implements ``services.http.ports.AdminOperations``."""

    def __init__(self, parts: OperationParts) -> None:
        self._parts = parts
        self._one_at_a_time = asyncio.Lock()

    async def rebuild(
        self, projections: Sequence[str] | None, *, accept_loss: bool = False, actor: str | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Rebuild beside the live views and swap; progress records, then ``result``."""
        async for record in self._long(lambda progress: self._parts.rebuild(projections, accept_loss, actor, progress)):
            yield record

    async def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the views still know of lost entries: ``entry`` or ``decision`` records, then ``result``."""
        self._refuse_second()
        async with self._one_at_a_time:
            async for record in self._parts.salvage(lambda _done, _total: None):
                yield record

    async def verify(self) -> AsyncIterator[Mapping[str, Any]]:
        """Compare with a fresh rebuild; progress records, then ``result``."""
        async for record in self._long(self._parts.verify):
            yield record

    async def embedder(self) -> Mapping[str, Any]:
        """The embedder, its model, and its last outcome."""
        answer: Mapping[str, Any] = as_json(self._parts.embedder())
        return answer

    def _refuse_second(self) -> None:
        if self._one_at_a_time.locked():
            raise Unavailable("another rebuild or verify is running", hint="wait for it to end, then ask again")

    async def _long(self, work: Work) -> AsyncIterator[Mapping[str, Any]]:
        self._refuse_second()
        async with self._one_at_a_time:
            news: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int) -> None:
                record = {"done": done, "total": total}
                loop.call_soon_threadsafe(news.put_nowait, record)

            task = asyncio.ensure_future(work(progress))
            task.add_done_callback(lambda _: loop.call_soon(news.put_nowait, None))
            try:
                while (record := await news.get()) is not None:
                    yield record
                yield {"result": as_json(await task)}
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
