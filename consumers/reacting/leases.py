"""The messages that a reactor holds: their ack wait is renewed while it works, and they are returned unless it settles them.

Invariants: a held message is settled (acked or put off) by its reactor, or returned to the broker, oldest first, at the
latest when the reactor pauses or stops; a message counts as settled only after the broker was informed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ..endings import end_task

PARTED_KEPT: Final = 8_192
"""Messages remembered that were put off or returned, about 1 MB: twice as many as a durable leaves unacked. Those that
another process settled are kept until they are the oldest."""
RENEWALS: Final = 3
"""Renewals within one ack wait: two may be lost before the broker delivers a message to another process."""


class Leases:
    """The messages that one reactor holds, by stream sequence.

    Args:
        ack_wait_s: Seconds until the broker delivers to another process what was not renewed.
        name: Of the reactor's durable; names the task that renews.
    """

    def __init__(self, ack_wait_s: float, name: str) -> None:
        self._ack_wait_s = ack_wait_s
        self._name = name
        self._held: dict[int, Msg] = {}
        self._parted: dict[int, None] = {}
        """Sequences that were put off or given back since, and did not come again."""

    @property
    def unsettled(self) -> frozenset[int]:
        """Sequences of messages that were received and not acked here: held, put off or returned."""
        return frozenset(self._held) | frozenset(self._parted)

    def hold(self, message: Msg) -> None:
        """Hold a message."""
        seq = message.metadata.sequence.stream
        self._held[seq] = message
        self._parted.pop(seq, None)

    def held(self, messages: Sequence[Msg]) -> list[Msg]:
        """The messages among these that are held."""
        return [message for message in messages if message.metadata.sequence.stream in self._held]

    async def ack(self, message: Msg) -> None:
        """Ack a message and stop holding it."""
        await message.ack()
        self._held.pop(message.metadata.sequence.stream, None)

    async def put_off(self, message: Msg, delay_s: float) -> None:
        """Put a message off: it is delivered again, to any process, in ``delay_s`` seconds."""
        await message.nak(delay=delay_s)
        self._part(message.metadata.sequence.stream)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew the ack wait of held messages while the block runs."""
        renewing = asyncio.create_task(self._renew(), name=f"{self._name} renewing")
        try:
            yield
        finally:
            await end_task(renewing)

    async def give_back(self) -> None:
        """Return the held messages to the broker, oldest first."""
        for seq in sorted(self._held):
            with contextlib.suppress(NatsError):
                await self._held[seq].nak()
            self._part(seq)

    def _part(self, seq: int) -> None:
        self._held.pop(seq, None)
        if len(self._parted) >= PARTED_KEPT:
            del self._parted[next(iter(self._parted))]
        self._parted[seq] = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ack_wait_s / RENEWALS)
            for message in list(self._held.values()):
                with contextlib.suppress(NatsError):
                    await message.in_progress()


def deliveries(message: Msg) -> int:
    """How often a message was delivered, this time included."""
    return message.metadata.num_delivered or 1
