"""Calls that share one run of blocking work in a thread: those that arrive during a run share the next one.

Why: at 640 appends a second, one scan or query for each takes more than a core; one for all that wait takes little more
than for one append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Grouped(Generic[Q, A]):
    """A function of many, called with one.

    Args:
        work: Answers several calls, in their order; runs in a thread, one run at a time.
        most: What ``size`` of the calls of one run may sum up to; a larger call runs alone.
        size: The size of a call.
    """

    def __init__(self, work: Callable[[list[Q]], Sequence[A]], most: int, size: Callable[[Q], int]) -> None:
        self._work = work
        self._most = most
        self._size = size
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, query: Q) -> A:
        """The answer to one call; raises what the run raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._waiting.append((query, future))
        if self._task is None:
            self._task = loop.create_task(self._run(), name="grouped calls")
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    answers = await asyncio.to_thread(self._work, [query for query, _ in group])
                except Exception as error:
                    for _, future in group:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(group, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._task = None

    def _next_group(self) -> list[tuple[Q, asyncio.Future[A]]]:
        count, total = 0, 0
        for query, _ in self._waiting:
            total += self._size(query)
            if count and total > self._most:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group
