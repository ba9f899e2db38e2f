"""Whether the broker is alive: a message that comes back, every second.

Why: a process that hangs (stopped, deadlocked) keeps its connections, and nats-py takes a minute to give them up.
Invariants: a broker that is silent for ``LATE_S`` makes the node not ready; one of ours that was silent at ``HUNG_LOOKS``
looks in a row is killed, and its supervisor starts it again. Looks are counted and not seconds: where this process was
stopped itself, one look follows before the answers that are waiting are read.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ..broker.broker import ManagedBroker
from ..broker.connection import BrokerConnection
from .watch_loop import Look

EVERY_S: Final = 1.0
"""Seconds between two messages; one costs 0.5 ms and touches no disk."""
LATE_S: Final = 1.5
"""Seconds without an answer after which a broker counts as silent: with ``EVERY_S`` a hung one shows within 2.5 s. Of 100
messages on two busy cores the slowest took 8 ms."""
HUNG_LOOKS: Final = 20
"""Looks, hence seconds, of silence until a broker of ours is replaced: an append waits 30 s for its ack, so one that met the
hung broker is still acked by the next."""

_log = structlog.get_logger(__name__)


class Heartbeat(Look):
    """Sends messages to itself through the broker; a part of the node.

    Args:
        client: A connection of its own, so that nothing else's messages are before its own.
        broker: Replaced when it hangs; None if it is not ours.
        hung_looks: Looks without an answer until then.
    """

    every_s = EVERY_S

    def __init__(self, client: BrokerConnection, broker: ManagedBroker | None, *, hung_looks: int = HUNG_LOOKS) -> None:
        self._client = client
        self._broker = broker
        self._hung_looks = hung_looks
        self._silent_since: float | None = None
        self._heard = asyncio.Event()
        self._silent_looks = 0

    @property
    def trouble(self) -> str | None:
        """That a broker we are connected to does not answer, and for how long; None if it does."""
        since = self._silent_since
        silent_s = 0.0 if since is None else asyncio.get_running_loop().time() - since
        if silent_s < LATE_S or not self._client.is_connected:
            return None
        what = f"; it is replaced after {self._hung_looks} s" if self._broker is not None else ""
        return f"the broker has not answered for {silent_s:.0f} s{what}"

    async def start(self) -> None:
        """Listen, and send the first message."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(self._inbox, cb=self._hear)
        await self.look()

    async def look(self) -> None:
        """Send a message; replace a broker of ours that hangs."""
        up = self._broker is None or self._broker.status().running
        self._silent_looks = self._silent_looks + 1 if up and self._silent_since is not None else 0
        if self._broker is not None and self._silent_looks >= self._hung_looks:
            _log.error("broker.hangs", silent_looks=self._silent_looks)
            await self._broker.restart(patience_s=0.0)  # it does not react to TERM
            self._silent_looks = 0
        if self._silent_since is None:
            self._silent_since = asyncio.get_running_loop().time()
        if self._client.is_connected:
            with contextlib.suppress(NatsError, OSError):  # it is being lost: the next one says so
                await self._client.publish(self._inbox, b"")

    async def _hear(self, _message: Msg) -> None:
        self._silent_since = None
