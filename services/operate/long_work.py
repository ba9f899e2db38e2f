"""Long operations on a running node: rebuild, salvage, verify and backup.

Invariant: one long operation at a time; progress is reported at once, and the last record is the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ...schemas.core.errors import Unavailable
from .status import as_json

Progress = Callable[[int, int], None]
Records = AsyncIterator[Mapping[str, Any]]


class LongOperations:
    """Runs the long operations, one at a time.

    Args:
        rebuild: ``(names or None, whether a loss is accepted, token of the caller, progress)`` → the result.
        verify: ``(progress)`` → the result with ``equal``.
        salvage: A record for each lost entry, the last with ``result``.
        backup: Records of a backup, the last with ``result``.
    """

    def __init__(
        self,
        *,
        rebuild: Callable[[Sequence[str] | None, bool, str | None, Progress], Awaitable[Mapping[str, Any]]],
        verify: Callable[[Progress], Awaitable[Mapping[str, Any]]],
        salvage: Callable[[], Records],
        backup: Callable[[], Records],
    ) -> None:
        self._rebuild = rebuild
        self._verify = verify
        self._salvage = salvage
        self._backup = backup
        self._one_at_a_time = asyncio.Lock()

    def rebuild(
        self, projections: Sequence[str] | None, *, accept_loss: bool = False, actor: str | None = None
    ) -> Records:
        """Rebuild projections (all if None) beside the live views and swap; progress records, then ``result``.

        Raises:
            JournalDamaged: While iterating, if the journal has lost something and ``accept_loss`` is not given.
        """
        return self._long(lambda progress: self._rebuild(projections, accept_loss, actor, progress))

    async def salvage(self) -> Records:
        """Entries that the journal has lost and the views still have: ``entry`` or ``decision`` records, then ``result``."""
        async for record in self._alone(self._salvage):
            yield record

    async def backup(self) -> Records:
        """The streams as the broker copies them: ``stream`` and ``chunk`` records, then ``result``."""
        async for record in self._alone(self._backup):
            yield record

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let no long operation run meanwhile; raises ``Unavailable`` if one does."""
        self._refuse_second()
        async with self._one_at_a_time:
            yield

    async def _alone(self, work: Callable[[], Records]) -> Records:
        self._refuse_second()
        async with self._one_at_a_time:
            async for record in work():
                yield record

    def verify(self) -> Records:
        """Compare the live views with a fresh rebuild; progress records, then ``result``."""
        return self._long(self._verify)

    def _refuse_second(self) -> None:
        if self._one_at_a_time.locked():
            raise Unavailable("another rebuild, verify or backup is running", hint="wait for it to end, then ask again")

    async def _long(self, work: Callable[[Progress], Awaitable[Mapping[str, Any]]]) -> Records:
        self._refuse_second()
        async with self._one_at_a_time:
            records: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int) -> None:
                loop.call_soon_threadsafe(records.put_nowait, {"done": done, "total": total})

            task = asyncio.ensure_future(work(progress))
            task.add_done_callback(lambda _: loop.call_soon(records.put_nowait, None))
            try:
                while (record := await records.get()) is not None:
                    yield record
                yield {"result": as_json(await task)}
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
