"""The reactors of a node, as found in ``consumers/reactors``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from ...consumers.discovery import discover_reactors
from ...consumers.reactor import Reactor, ReactorContext
from ...consumers.reactors.embed import EmbedReactor
from ..parts import Part
from .figures import statuses
from .filling import Filling


class Reactors(Part):
    """All reactors but the embed reactors: ``filling`` starts one for each model.

    Args:
        context: The parts of the node.
        filling: Its embed reactors, for ``figures``.
        say: Called with one line that names the reactors.
    """

    def __init__(self, context: ReactorContext, filling: Filling, say: Callable[[str], None]) -> None:
        self._context = context
        self._filling = filling
        self._say = say
        self._stack = AsyncExitStack()
        self._started: dict[str, Reactor] = {}
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Start them. They are imported in a thread, because the node already answers."""
        try:
            for name, create in (await asyncio.to_thread(discover_reactors)).items():
                reactor = None if name == EmbedReactor.name else create(self._context)
                if reactor is not None:
                    await reactor.start()
                    self._stack.push_async_callback(reactor.stop)
                    self._started[name] = reactor
        finally:
            self._tried.set()
        self._say(f"reactors: {', '.join(self._started)}")

    async def stop(self) -> None:
        """Stop them, the last one first, even if one fails to stop."""
        await self._stack.aclose()

    async def figures(self) -> list[Mapping[str, Any]]:
        """How each is doing, once they have started; those that fill a model first."""
        await self._tried.wait()
        filling, started = await asyncio.gather(statuses(self._filling.reactors), statuses(self._started))
        return [*({**status, "model": model} for model, status in filling.items()), *started.values()]
