"""Bulk replay of JOURNAL, the fastest way to read it: 67,000 messages/s (facts/nats.md).

It uses an ephemeral consumer without acks and an inbox of its own, and sends requests ahead. Invariant: every existing
message between the two sequences is yielded once and in order, even if the connection fails in between: a gap in the
count of deliveries restarts the consumer after the last message seen. Messages and bytes that are read ahead are
limited; a request that reached its limit of bytes also restarts the consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final, Protocol, runtime_checkable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError

from ...schemas.core.errors import BrokerUnavailable
from ...schemas.core.subjects import JOURNAL_STREAM
from ...schemas.settings import REPLAY_BATCH_BYTES, REPLAY_BATCH_MESSAGES
from .jetstream import (
    HEARTBEAT,
    PULL_BYTES,
    REPLAY_EXPIRES_S,
    REPLAY_INACTIVE_S,
    REPLAY_PULL,
    next_subject,
    pull_request,
    status_code_of,
)
from .messages import RawMessage, headers_of, in_parts, place_of, position_of, raw_message, status_of

LOOK_S: Final = 0.5
"""Seconds without a message until the connection is checked."""
STALL_S: Final = 5.0
"""Seconds without a requested message until the consumer is restarted."""
GIVE_UP_S: Final = 60.0
"""Seconds without any progress until the replay fails."""
RETRY_S: Final = 0.25
"""Seconds between attempts while the broker is away."""

_log = structlog.get_logger(__name__)


Sink = Callable[[bytes, bytes, bytes, bytes | None], None]


@runtime_checkable
class Diverting(Protocol):
    """A client that passes on parsed messages directly, like the service's own connection; costs a third."""

    async def divert(self, subject: str, sink: Sink) -> Subscription:
        """Subscribe; ``sink`` takes subject, reply subject, body and raw header block."""
        ...

    async def release(self, subscription: Subscription) -> None:
        """End the subscription."""
        ...


async def end_subscription(client: Client, subscription: Subscription) -> None:
    """End a subscription, by ``release`` if the client is ``Diverting``."""
    if isinstance(client, Diverting):
        await client.release(subscription)
    else:
        await subscription.unsubscribe()


async def replay(
    client: Client, first_seq: int, last_seq: int, *, batch: int = REPLAY_BATCH_MESSAGES, stream: str = JOURNAL_STREAM
) -> AsyncGenerator[list[RawMessage], None]:
    """The stored messages from ``first_seq`` to ``last_seq``, both included, in stream order.

    Ends at the current end of the stream if that comes first. Deleted sequences are skipped.

    Args:
        client: A connection that may read the stream; any client of nats-py, fastest with one that is ``Diverting``.
        first_seq: First sequence to read.
        last_seq: Last sequence to read.
        batch: Maximum number of messages of a list, which has at most ``REPLAY_BATCH_BYTES`` unless one message is
            larger. All lists are full except the last one and lists after a lost connection.
        stream: Name of the stream.

    Raises:
        BrokerUnavailable: If no message arrived for a minute.
    """
    run = _Replay(client, stream, max(1, first_seq), last_seq, batch)
    try:
        while (messages := await run.next_batch()) is not None:
            if messages:
                yield messages
    finally:
        await run.close()


class _Replay:
    def __init__(self, client: Client, stream: str, first_seq: int, last_seq: int, batch: int) -> None:
        self._client = client
        self._js: JetStreamContext = client.jetstream()
        self._stream = stream
        self._next = first_seq  # first sequence not buffered yet
        self._last = last_seq
        self._batch = batch
        self._ahead = max(2 * REPLAY_PULL, batch + REPLAY_PULL)
        self._buffer: list[RawMessage] = []
        self._bytes = 0  # bytes of the buffered bodies
        self._arrived = asyncio.Event()
        self._finished = False
        self._lost = False
        self._consumer: str | None = None
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._asked = 0  # messages requested and not delivered
        self._delivery = 0
        self._reconnects = 0

    async def next_batch(self) -> list[RawMessage] | None:
        """The next messages, possibly an empty list; None at the end."""
        loop = asyncio.get_running_loop()
        progress = loop.time()
        while not self._is_full() and not self._is_finished():
            have = len(self._buffer)
            try:
                if self._consumer is None or self._lost:
                    await self._begin()
                    if self._is_finished():
                        break
                await self._ask()
                async with asyncio.timeout(LOOK_S):
                    await self._arrived.wait()
            except TimeoutError:
                reconnected = self._client.stats["reconnects"] != self._reconnects
                if self._consumer is not None and (reconnected or loop.time() - progress > STALL_S):
                    self._lost = True
            except (NatsError, APIError) as error:
                _log.warning("replay.interrupted", stream=self._stream, next_seq=self._next, error=str(error))
                self._lost = True
                await asyncio.sleep(RETRY_S)
            if len(self._buffer) > have:
                progress = loop.time()
            elif loop.time() - progress > GIVE_UP_S:
                raise BrokerUnavailable(
                    f"no message of {self._stream} from {self._next} on came within {GIVE_UP_S:g} s",
                    hint="is the broker up?",
                )
        if not self._buffer:
            return None if self._is_finished() else []
        messages = list(next(in_parts(self._buffer[: self._batch], REPLAY_BATCH_BYTES)))
        self._buffer = self._buffer[len(messages) :]
        self._bytes = sum(len(message.data) for message in self._buffer)
        return messages

    def _is_full(self) -> bool:
        return len(self._buffer) >= self._batch or self._bytes >= REPLAY_BATCH_BYTES

    def _is_finished(self) -> bool:
        return self._finished

    async def close(self) -> None:
        """Remove consumer and subscription; the broker removes an abandoned consumer by itself."""
        consumer, self._consumer = self._consumer, None
        subscription, self._subscription = self._subscription, None
        with contextlib.suppress(NatsError, APIError, TimeoutError):
            if subscription is not None:
                await end_subscription(self._client, subscription)
            if consumer is not None and self._client.is_connected:
                await self._js.delete_consumer(self._stream, consumer)

    async def _begin(self) -> None:
        """Start a consumer at the first unseen sequence."""
        await self.close()
        self._reconnects = self._client.stats["reconnects"]
        state = (await self._js.stream_info(self._stream)).state
        self._last = min(self._last, state.last_seq)
        if self._next > self._last or state.messages == 0:
            self._finished = True
            return
        self._inbox = inbox = self._client.new_inbox()

        def sink(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            if self._inbox != inbox:
                return  # a message of an abandoned consumer
            if not reply:
                self._on_status(status_of(headers or b""))
            elif not (self._lost or self._finished):
                seq, delivery, published_ms, pending = place_of(reply.decode())
                if self._is_next(seq, delivery):
                    self._take(RawMessage(seq, subject.decode(), headers_of(headers), data, published_ms), pending)

        async def deliver(message: Msg) -> None:
            if self._inbox != inbox:
                return
            if not message.reply:
                self._on_status(status_code_of(message))
            elif not (self._lost or self._finished):
                position = position_of(message.reply)
                if self._is_next(position.seq, position.delivery):
                    self._take(raw_message(position, message.subject, message.headers, message.data), position.pending)

        if isinstance(self._client, Diverting):
            self._subscription = await self._client.divert(inbox, sink)
        else:
            self._subscription = await self._client.subscribe(inbox, cb=deliver, pending_bytes_limit=0)
        info = await self._js.add_consumer(
            self._stream,
            ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._next,
                ack_policy=AckPolicy.NONE,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=REPLAY_INACTIVE_S,
            ),
        )
        self._consumer = info.name
        self._asked = self._delivery = 0
        self._lost = False
        if not info.num_pending:  # everything from here on was deleted
            self._finished = True

    async def _ask(self) -> None:
        self._arrived.clear()
        subject = next_subject(self._stream, str(self._consumer))
        request = pull_request(REPLAY_PULL, REPLAY_EXPIRES_S, PULL_BYTES)
        while self._asked + len(self._buffer) <= self._ahead - REPLAY_PULL:
            await self._client.publish(subject, request, reply=self._inbox)
            self._asked += REPLAY_PULL

    def _is_next(self, seq: int, delivery: int) -> bool:
        """Count a delivery; False if messages before it were lost or it lies after the end."""
        self._asked -= 1
        self._delivery += 1
        if delivery != self._delivery:
            self._lost = True
        elif seq > self._last:
            self._finished = True
        else:
            return True
        self._arrived.set()
        return False

    def _take(self, message: RawMessage, pending: int) -> None:
        self._buffer.append(message)
        self._bytes += len(message.data)
        self._next = message.seq + 1
        if message.seq == self._last or pending == 0:
            self._finished = True
        if self._finished or self._asked <= REPLAY_PULL or self._is_full():
            self._arrived.set()

    def _on_status(self, status: str) -> None:
        if status != HEARTBEAT and not self._finished:
            self._lost = True  # request expired, consumer gone, leader changed: restart
            self._arrived.set()
