"""A runtime inside this process, for commands that find no running ``up``.

Invariant: it lives in a thread with an event loop of its own and is stopped, drained, before the command ends; the
command itself talks to it over HTTP like to any other service, so there is one way to do each thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from ...schemas.errors import Unavailable
from .logs import configure_logging

if TYPE_CHECKING:
    from ...schemas.settings import Settings
    from ..runtime import Runtime

START_TIMEOUT_S: Final = 180.0
"""Seconds until the runtime must be up: after a crash the broker re-reads its blocks (up to 120 s) and the views
catch up; an ordinary start takes under 4."""


@contextmanager
def local_runtime(settings: Settings) -> Iterator[Runtime]:
    """The full runtime, for the time of the block.

    Args:
        settings: Its settings; ``http`` should name port 0.

    Raises:
        Unavailable: If it does not start in time.
    """
    from anyio.from_thread import start_blocking_portal

    configure_logging(settings.log_level)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_started(settings)) as runtime:
        yield runtime


@asynccontextmanager
async def _started(settings: Settings) -> AsyncIterator[Runtime]:
    from anyio import CancelScope

    from ..runtime import Runtime

    runtime = Runtime(settings)
    try:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await runtime.start()
        except TimeoutError:
            raise Unavailable(
                f"the journal in {settings.data_dir} did not start within {START_TIMEOUT_S:.0f} s",
                hint="run `crew-journal doctor`, or `crew-journal up` to see what takes so long",
            ) from None
        yield runtime
    finally:
        with CancelScope(shield=True):  # Ctrl-C cancels this task
            await runtime.stop()
