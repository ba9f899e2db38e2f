"""Starts the reactors that are found in ``consumers/reactors``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from ...consumers.discovery import discover_reactors
from ...consumers.reactor import Reactor, ReactorContext
from ...consumers.reactors.embed import EmbedReactor


async def start_reactors(stack: AsyncExitStack, context: ReactorContext, say: Callable[[str], None]) -> list[Reactor]:
    """Start every reactor but the embed reactors: ``filling`` starts one for each model.

    Args:
        stack: Stops them.
        context: What they work with.
        say: Called with one line that names them.
    """
    started: dict[str, Reactor] = {}
    for name, create in discover_reactors().items():
        reactor = None if name == EmbedReactor.name else create(context)
        if reactor is not None:
            await reactor.start()
            stack.push_async_callback(reactor.stop)
            started[name] = reactor
    say(f"reactors: {', '.join(started)}")
    return list(started.values())
