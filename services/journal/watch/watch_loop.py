"""The one loop that looks at broker and stream, each thing at its own pace.

Invariant: a look that takes long delays no other, because a broker that hangs lets each request wait for its whole time-out;
the next look of the same thing begins after its end. A look that fails ends neither the loop nor later looks.
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
    """Something that is looked at regularly; ``start`` may look for the first time."""

    every_s: ClassVar[float]
    """Seconds from one look to the next."""
    after_reconnect: ClassVar[bool] = False
    """Whether it looks at once after a reconnect, too."""

    @abstractmethod
    async def look(self) -> None:
        """Look once.

        Raises:
            BrokerError: If the broker does not answer; the connection reports that.
        """


class Watch(Part):
    """Looks at several things until it is stopped.

    Args:
        client: Whose reconnects count.
        looks: What is looked at; started and shown by the caller.
    """

    def __init__(self, client: BrokerConnection, *looks: Look) -> None:
        self._client = client
        self._looks = looks
        self._reconnected = asyncio.Event()

    async def start(self) -> None:
        """Look for the first time one interval from now."""
        self._forget = self._client.on_reconnect(self._reconnected.set)
        self._task = asyncio.create_task(self._run(), name="watch of broker and stream")

    async def stop(self) -> None:
        """Look no longer; looks under way are cancelled."""
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
    except BrokerError:  # it is away: the connection says so
        pass
    except Exception:
        _log.exception("watch.failed", look=type(look).__name__)
