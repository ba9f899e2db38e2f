"""The loop that runs all checks of broker and stream, each at its own interval.

Invariant: a slow check does not delay other checks, because with a hanging broker each request waits for its whole
time-out. The next run of the same check starts after its end. A failed check ends neither the loop nor later checks.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from typing import ClassVar

import structlog

from ....schemas.core.errors import BrokerError
from ...endings import end_task
from ...parts import Part
from ..broker.connection import BrokerConnection

_log = structlog.get_logger(__name__)


class Look(Part):
    """A regular check; ``start`` may run it for the first time."""

    every_s: ClassVar[float]
    """Seconds between two checks."""
    after_reconnect: ClassVar[bool] = False
    """Whether to check immediately after a reconnect, too."""

    @abstractmethod
    async def look(self) -> None:
        """Look once.

        Raises:
            BrokerError: If the broker does not answer; the connection reports it.
        """


class Watch(Part):
    """Runs several checks until it is stopped.

    Args:
        client: The connection whose reconnects trigger checks.
        looks: The checks; the caller starts them and shows their state.
    """

    def __init__(self, client: BrokerConnection, *looks: Look) -> None:
        self._client = client
        self._looks = looks
        self._reconnected = asyncio.Event()

    async def start(self) -> None:
        """Start the loop; the first check runs after one interval."""
        self._forget = self._client.on_reconnect(self._reconnected.set)
        self._task = asyncio.create_task(self._run(), name="watch of broker and stream")

    async def stop(self) -> None:
        """Stop the loop and cancel running checks."""
        self._forget()
        await end_task(self._task)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = {look: loop.time() + look.every_s for look in self._looks}
        running: dict[Look, asyncio.Task[None]] = {}
        try:
            while True:
                now = loop.time()
                for look, at in due.items():
                    if now >= at and (look not in running or running[look].done()):
                        running[look] = asyncio.create_task(_once(look))
                        due[look] = now + look.every_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(look.every_s for look in self._looks)):
                        await self._reconnected.wait()
                        self._reconnected.clear()
                        due |= {look: 0.0 for look in self._looks if look.after_reconnect}
        finally:
            for task in running.values():
                await end_task(task)


async def _once(look: Look) -> None:
    try:
        await look.look()
    except BrokerError:  # the broker is unavailable; the connection reports it
        pass
    except Exception:
        _log.exception("watch.failed", look=type(look).__name__)
