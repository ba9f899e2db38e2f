"""Whether JOURNAL is still the stream the views were folded from.

Why: a stream that is deleted and created again begins at 1; the views, far beyond that, would skip every new message without
an error. They are compared with ``streams.made_at`` at the start (``consumers/host/provenance``), and here while a node
runs.

Invariant: a replaced stream is named as the reason why the node is not ready, from the next look on until it is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from ....schemas.errors import BrokerError
from ....schemas.subjects import JOURNAL_STREAM
from ...endings import end_task
from ...parts import Part
from ..broker.connection import Connection
from ..broker.streams import made_at, stream_info

LOOK_EVERY_S: Final = 15.0
"""Seconds between two looks; a stream is rarely replaced without the connection being lost, after which we look at once."""

_log = structlog.get_logger(__name__)


class StreamWatch(Part):
    """Compares when JOURNAL was created with what the views were folded from.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream that the views are of.
        every_s: Seconds between two looks.
    """

    def __init__(self, client: Connection, made: str, *, every_s: float = LOOK_EVERY_S) -> None:
        self._client = client
        self._every_s = every_s
        self._made = made
        self._trouble: str | None = None
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._forget: Callable[[], None] = lambda: None

    @property
    def trouble(self) -> str | None:
        """The problem with the stream, None if it was not replaced."""
        return self._trouble

    async def start(self) -> None:
        """Look now, after each reconnect and from time to time."""
        await self._look()
        self._forget = self._client.on_reconnect(self._due.set)
        self._task = asyncio.create_task(self._run(), name="stream-watch")

    async def stop(self) -> None:
        """Look no longer."""
        self._forget()
        await end_task(self._task)

    async def _run(self) -> None:
        while self._trouble is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._due.wait()
            self._due.clear()
            with contextlib.suppress(BrokerError):  # it is away: the connection says so
                await self._look()

    async def _look(self) -> None:
        info = await stream_info(self._client, JOURNAL_STREAM)
        made = made_at(info) if info is not None else "never"
        if made != self._made:
            self._trouble = (
                f"the stream {JOURNAL_STREAM} is another one than at the start (made {made}, before {self._made}): "
                "start the node again, its views are then folded from this one"
            )
            _log.error("stream.replaced", made=made, before=self._made)
