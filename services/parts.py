"""The parts of a node: each can be started and stopped, and reports figures and problems.

Invariant: parts are stopped in reverse order of starting; status, readiness and metrics ask every part in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from inspect import isawaitable
from typing import Any, Final, TypeVar

# Ends background tasks.
#
# A copy of ``consumers/endings.py``, because the two packages may not import each other, and ``schemas`` may not use
# asyncio.
#
# nats-py waits for answers with ``asyncio.wait_for``, which in Python 3.11 sometimes swallows a cancellation that
# arrives together with the answer. A caller that cancels only once could then wait for ever. Invariant: when
# ``end_task`` returns, the task is done.


CANCEL_AGAIN_S: Final = 0.5
"""Seconds until a task that continues after its cancellation is cancelled again."""


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task repeatedly until it ends; None does nothing.

    Raises:
        Exception: The task's own error, if it failed.
    """
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with contextlib.suppress(asyncio.CancelledError):
        task.result()


class Part:
    """A part of the node; a subclass overrides the methods that it needs."""

    async def start(self) -> None:
        """Begin to work."""

    async def stop(self) -> None:
        """End the work."""

    def figures(self) -> Any:
        """Its section of ``/v1/status``, or an awaitable of it; None for no section."""
        return None

    @property
    def trouble(self) -> str | None:
        """Why the node cannot serve because of this part; None if it can."""
        return None


class _Shown(Part):
    def __init__(self, figures: Callable[[], Any], trouble: Callable[[], str | None]) -> None:
        self._figures = figures
        self._trouble = trouble

    def figures(self) -> Any:
        return self._figures()

    @property
    def trouble(self) -> str | None:
        return self._trouble()


_P = TypeVar("_P", bound=Part)


class Parts:
    """The parts of one node by name, in the order of starting.

    Args:
        stack: Stops them.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._parts: dict[str, Part] = {}

    async def begin(self, name: str, part: _P) -> _P:
        """Start a part."""
        await part.start()
        return self.keep(name, part)

    def keep(self, name: str, part: _P) -> _P:
        """Add a part that the caller starts later; its place in the order of stopping is determined now."""
        self._stack.push_async_callback(part.stop)
        self._parts[name] = part
        return part

    def show(
        self, name: str, figures: Callable[[], Any] = lambda: None, trouble: Callable[[], str | None] = lambda: None
    ) -> None:
        """Add figures of a part that is started and stopped by other code."""
        self._parts[name] = _Shown(figures, trouble)

    def troubles(self) -> list[str]:
        """Why the node cannot serve; empty if it can."""
        return [trouble for part in self._parts.values() if (trouble := part.trouble) is not None]

    async def figures(self, *names: str) -> dict[str, Any]:
        """Name → figures of the parts with a section; only of the named parts, if names are given.

        All are queried concurrently, because parts that ask an unavailable broker wait for their whole time-out.
        """
        wanted = names or tuple(self._parts)
        gathered = await asyncio.gather(*(_figures_of(self._parts[name]) for name in wanted))
        return {name: figures for name, figures in zip(wanted, gathered, strict=True) if figures is not None}


async def _figures_of(part: Part) -> Any:
    figures = part.figures()
    return await figures if isawaitable(figures) else figures
