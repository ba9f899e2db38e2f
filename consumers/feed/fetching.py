"""The live feed's pulls: single messages of a quiet stream at once, those of a busy stream in batches.

They are the subscription of FastStream's subscriber from its start, in place of nats-py's. FastStream 0.7.8 fills a batch
with several calls of nats-py's ``fetch``, whose traps (``jetstream``) cost 46 ms from publish to recall, most of it waiting,
and 24 of 300 lone messages.

Invariants: each delivered message is returned once, in the order of delivery; a batch has at most ``BATCH_BYTES``, unless
one message alone has more; two batches end at least ``spacing_s`` seconds apart unless the second is full.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from ...schemas.settings import BATCH_BYTES
from .jetstream import (
    ENDED,
    FEED_EXPIRES_S,
    GRACE_S,
    HEARTBEAT,
    PULL_BYTES,
    REFUSED_PAUSE_S,
    is_full,
    next_subject,
    pull_request,
    status_code_of,
)
from .positions import position_of


class Pulls:
    """A pull subscription that returns batches.

    Args:
        client: FastStream's connection.
        stream: Name of the stream.
        durable: Name of the consumer; it need not exist yet.
        batch: Messages of a batch at most.
        spacing_s: Least seconds between the ends of two batches that are not full.
    """

    def __init__(self, client: Client, stream: str, durable: str, *, batch: int, spacing_s: float) -> None:
        self._client = client
        self._subject = next_subject(stream, durable)
        self._batch = batch
        self._spacing_s = spacing_s
        self._held: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._asked = 0  # messages of the standing request that have not come
        self._asked_at = 0.0
        self._refused_at = 0.0
        self._ended_at = 0.0  # when the last batch was handed over
        self._inbox = ""
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen."""
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox, cb=self._on_message, pending_bytes_limit=0)

    def request_again(self) -> None:
        """Forget the standing request: the connection it was made on is gone."""
        self._asked = 0
        self._arrived.set()

    async def next_batch(self) -> list[Msg]:
        """The next messages, at least one; waits for it as long as it takes."""
        loop = asyncio.get_running_loop()
        while not self._held:
            await self._arrival(REFUSED_PAUSE_S)
        ends_at = max(loop.time(), self._ended_at + self._spacing_s)
        messages: list[Msg] = []
        size = 0
        while True:
            while self._held and len(messages) < self._batch and size < BATCH_BYTES:
                messages.append(self._held.popleft())
                size += len(messages[-1].data)
            more = position_of(messages[-1].reply).pending > 0  # whether the broker had more when it sent the last one
            left = ends_at + (self._spacing_s if more else 0.0) - loop.time()
            if len(messages) >= self._batch or size >= BATCH_BYTES or left <= 0:
                self._ended_at = loop.time()
                return messages
            await self._arrival(left)

    async def unsubscribe(self) -> None:
        """End the subscription; buffered messages are delivered again to the next consumer."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _arrival(self, seconds: float) -> None:
        """Wait until something arrives, at most so long."""
        self._arrived.clear()
        await self._ask(asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()

    async def _ask(self, now: float) -> None:
        """Have a request standing, unless one was refused just now."""
        if self._asked and now - self._asked_at > FEED_EXPIRES_S + GRACE_S:
            self._asked = 0
        if self._asked or now - self._refused_at < REFUSED_PAUSE_S:
            return
        self._asked, self._asked_at = self._batch, now
        request = pull_request(self._batch, FEED_EXPIRES_S, PULL_BYTES)
        try:
            await self._client.publish(self._subject, request, reply=self._inbox)
        except NatsError:  # not connected: the feed's status says so
            self._asked, self._refused_at = 0, now

    async def _on_message(self, message: Msg) -> None:
        if message.reply:  # stored messages have one, whatever their headers say; the server's status messages do not
            self._held.append(message)
            self._asked = max(0, self._asked - 1)
        else:
            status = status_code_of(message)
            if status != HEARTBEAT and status not in ENDED and not is_full(message):
                self._refused_at = asyncio.get_running_loop().time()
            if status != HEARTBEAT:
                self._asked = 0
        self._arrived.set()
