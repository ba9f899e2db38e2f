"""What the node starts and stops."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Protocol


class Part(Protocol):
    """A part of the node that works until it is stopped."""

    async def start(self) -> None:
        """Begin its work."""
        ...

    async def stop(self) -> None:
        """End its work."""
        ...


async def begin(stack: AsyncExitStack, part: Part) -> None:
    """Start a part; the stack stops it."""
    await part.start()
    stack.push_async_callback(part.stop)
