"""Pulls for FastStream's subscriber: single messages of a quiet stream at once, those of a busy stream in batches.

FastStream 0.7.8 fills a batch with several calls of nats-py's ``fetch``, whose traps (``jetstream``) cost 46 ms from
publish to recall, most of it waiting, and 24 of 300 lone messages.

Invariants: each delivered message is returned once, in the order of delivery; a time-out is raised only while no message is
buffered, or when the batch has ``BATCH_BYTES``; two batches end at least ``spacing_s`` seconds apart unless the second is
full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext

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
    """A pull subscription, as far as FastStream uses one.

    Args:
        client: FastStream's connection.
        stream: Name of the stream.
        durable: Name of the consumer; it need not exist yet.
        batch: Messages of a whole batch: a fetch of fewer is FastStream asking for more of the same batch.
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
        self._ends_at = 0.0  # when the batch in hand ends, unless more is known to come
        self._ended_at = 0.0  # when the last messages were handed over
        self._taken = 0  # bytes of the batch in hand
        self._more = False  # whether the broker had more when it sent the last of those
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._replaced: JetStreamContext.PullSubscription | None = None

    async def take_over(self, subscriber: Any) -> None:
        """Listen, and fetch for a started FastStream subscriber from now on; call it right after ``broker.start()``.

        Its first fetch may still be nats-py's; what that one loses, the feed finds missing and reads.

        Raises:
            TypeError: If the subscriber has no pull subscription: it was not started, or FastStream has changed.
        """
        if not isinstance(subscriber.subscription, JetStreamContext.PullSubscription):
            raise TypeError("the subscriber has no pull subscription")
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox, cb=self._on_message, pending_bytes_limit=0)
        self._replaced = subscriber.subscription
        subscriber.subscription = self

    def request_again(self) -> None:
        """Forget the standing request: the connection it was made on is gone."""
        self._asked = 0
        self._arrived.set()

    async def fetch(self, batch: int = 1, timeout: float | None = None) -> list[Msg]:  # noqa: ASYNC109  # nats-py's
        """Messages of the batch that FastStream fills, at least one.

        Raises:
            nats.errors.TimeoutError: If there is none in time, or the batch had better end.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._spacing_s if timeout is None else timeout)
        begins = batch >= self._batch
        if not begins:
            until = min(until, self._ends_at + (self._spacing_s if self._more else 0.0))
        if begins or self._taken < BATCH_BYTES:
            await self._wait(1 if begins or self._more else batch, until)
        messages = self._take(batch, begins=begins)
        now = loop.time()
        if begins and messages:
            self._ends_at = max(now, self._ended_at + self._spacing_s)
        if messages or not begins:
            self._ended_at = now
        if not messages:
            raise NatsTimeoutError
        self._more = position_of(messages[-1].reply).pending > 0
        return messages

    def _take(self, batch: int, *, begins: bool) -> list[Msg]:
        """Held messages, until the batch has its maximum number or ``BATCH_BYTES``."""
        if begins:
            self._taken = 0
        messages: list[Msg] = []
        while self._held and len(messages) < batch and self._taken < BATCH_BYTES:
            messages.append(self._held.popleft())
            self._taken += len(messages[-1].data)
        return messages

    async def unsubscribe(self) -> None:
        """End both subscriptions; buffered messages are delivered again to the next consumer."""
        for subscription in (self._subscription, self._replaced):
            if subscription is not None:
                await subscription.unsubscribe()

    async def _wait(self, wanted: int, until: float) -> None:
        """Wait until ``wanted`` messages are held or the time has come."""
        loop = asyncio.get_running_loop()
        while len(self._held) < wanted and (left := until - loop.time()) > 0:
            self._arrived.clear()
            await self._ask(loop.time())
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

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
