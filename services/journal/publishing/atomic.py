"""Atomic batches of JetStream ≥ 2.12: all messages are stored, or none.

They are also the only group commit there is under ``sync_interval: always``: one batch, one fsync (facts/nats.md).
Protocol (ADR-50 of NATS): each message bears the batch's id and its own number, the last one the commit mark; the
commit's ack tells the last sequence and the count, and the batch lies contiguously before it. The first message asks for an
answer, too: an empty one if the batch is open, else why it is not, which the commit's "incomplete" would not tell.

Invariant: ``publish`` returns sequences only where the broker acked the commit of exactly these messages. An outcome
that is not known (a lost ack) is tried again with the same message ids; if the first try did land, the broker refuses
the second for its duplicates, and single publishes then tell every sequence.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from nats.aio.subscription import Subscription

from ....schemas.errors import BrokerUnavailable, EntryTooLarge
from ....schemas.events.derived import OutgoingMessage
from ....schemas.ports import Published
from ..broker.connection import Connection, encode_headers, encode_publish
from .acks import Verdict, read_answer

MAX_ATOMIC: Final = 1_000
"""Messages of one batch that a server takes by default (measured: 1,000 pass, 1,001 do not)."""
PAUSE_S: Final = 0.1
"""Seconds before a batch is tried again that the server could not take just now."""
PLACES: Final = 32
"""Batches of this writer in flight: the server keeps 50 of a stream open, those of other nodes and processes among them."""
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
BATCH_HEAD: Final = 128
"""Bytes that the headers of a batch add to a message, at most."""
_END: Final = len(b"\r\n")
"""Bytes of the blank line that ends a header block."""
_ID_BYTES: Final = 12
"""Random bytes of a batch id; the server takes at most 64 characters (measured)."""

_log = structlog.get_logger(__name__)


class Encoded(Protocol):
    """A message whose headers are encoded already."""

    @property
    def subject(self) -> str:
        """A validated subject."""
        ...

    @property
    def head(self) -> bytes:
        """The header block, from ``encode_headers``."""
        ...

    @property
    def body(self) -> bytes:
        """The body."""
        ...


@dataclass(slots=True)
class EncodedMessage:
    """A message whose headers are encoded already."""

    subject: str
    head: bytes
    body: bytes

    @classmethod
    def of(cls, message: OutgoingMessage) -> EncodedMessage:
        """``message``, encoded."""
        return cls(message.subject, encode_headers(message.headers), message.body)


def refuse_oversized(messages: Sequence[Encoded], limit: int) -> None:
    """Refuse what is above the broker's limit: it would answer by closing the connection.

    Raises:
        EntryTooLarge: If a message is.
    """
    for message in messages:
        if len(message.body) + len(message.head) + BATCH_HEAD > limit:
            raise EntryTooLarge(
                f"a message for {message.subject} has {len(message.body):,} bytes, the broker takes {limit:,}",
                hint="raise max_payload of the broker to 1 MiB",
            )


class AtomicPublisher:
    """Publishes atomic batches; used by the writer, which falls back to singles where this returns None.

    Args:
        client: The writer's connection.
        ack_timeout_s: Seconds until an unanswered batch is tried again.
    """

    def __init__(self, client: Connection, *, ack_timeout_s: float) -> None:
        self._client = client
        self._ack_timeout_s = ack_timeout_s
        self._commits: dict[str, asyncio.Future[bytes]] = {}
        self._places = asyncio.Semaphore(PLACES)
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._connected = asyncio.Event()
        self._forget_reconnects: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Subscribe to the acks."""
        self._inbox = self._client.new_inbox() + "."
        self._subscription = await self._client.divert(self._inbox + "*", self._on_answer)
        self._forget_reconnects = self._client.on_reconnect(self._lost)

    async def close(self) -> None:
        """Let go; batches in flight were waited for by the writer."""
        self._forget_reconnects()
        if self._subscription is not None:
            await self._client.release(self._subscription)

    async def publish(self, messages: Sequence[Encoded], deadline: float) -> list[Published] | None:
        """Publish all or nothing.

        Args:
            messages: 2 to ``MAX_ATOMIC``.
            deadline: The event loop's time when to give up.

        Returns:
            The acks in order, or None if single publishes have to settle it: an id is known already, or the server
            takes no batch of this size.

        Raises:
            BrokerUnavailable: If the deadline passed.
            BrokerError: If the broker refuses.
        """
        loop = asyncio.get_running_loop()
        trouble = BrokerUnavailable("the broker did not ack the batch in time", hint="see crew-journal status")
        while (left := deadline - loop.time()) > 0:
            if not self._client.is_connected:
                if self._client.is_closed:
                    raise BrokerUnavailable("the connection to the broker is closed")
                await self._reconnected(left)
                continue
            data = await self._try_in_place(messages, deadline)
            if data is None:
                continue
            answer = read_answer(data)
            if answer.verdict is Verdict.TRY_SINGLES:
                return None
            if answer.verdict is Verdict.ACKED and answer.published is not None:
                if answer.count != len(messages):  # the server knows no batches and stored what it got as singles
                    return None
                first = answer.published.seq - len(messages) + 1
                return [Published(first + n, duplicate=False) for n in range(len(messages))]
            assert answer.error is not None
            if answer.verdict is Verdict.REFUSED or not isinstance(answer.error, BrokerUnavailable):
                raise answer.error
            trouble = answer.error
            await asyncio.sleep(min(PAUSE_S, left))
        raise trouble

    async def _try_in_place(self, messages: Sequence[Encoded], deadline: float) -> bytes | None:
        """One try, once it is our turn; None if it was not before the deadline, too."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            return None
        try:
            left = deadline - asyncio.get_running_loop().time()
            return await self._try(messages, min(left, self._ack_timeout_s))
        finally:
            self._places.release()

    async def _try(self, messages: Sequence[Encoded], timeout_s: float) -> bytes | None:
        batch_id = secrets.token_urlsafe(_ID_BYTES)
        reply = self._inbox + batch_id
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._commits[batch_id] = future
        last = len(messages)
        client = self._client
        try:
            for number, message in enumerate(messages, 1):
                commit = f"{BATCH_COMMIT}: 1\r\n" if number == last else ""
                lines = f"{BATCH_ID}: {batch_id}\r\n{BATCH_SEQUENCE}: {number}\r\n{commit}\r\n"
                head = message.head[:-_END] + lines.encode()
                answer_to = reply if number in (1, last) else ""
                if client.send(encode_publish(message.subject, answer_to, head, message.body)):
                    await client.relieve()
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            _log.warning("writer.batch_unacked", batch=batch_id, messages=last, after_s=timeout_s)
            return None
        except _LostByReconnectError:
            return None
        finally:
            del self._commits[batch_id]

    def _on_answer(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if not data and headers is None:
            return  # the batch is open; without a stream to take it there would be a status in the headers
        future = self._commits.get(subject[len(self._inbox) :].decode())
        if future is not None and not future.done():
            future.set_result(data)

    def _lost(self) -> None:
        self._connected.set()
        for future in self._commits.values():
            if not future.done():
                future.set_exception(_LostByReconnectError())

    async def _reconnected(self, timeout_s: float) -> None:
        self._connected.clear()
        if self._client.is_connected:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()


class _LostByReconnectError(Exception):
    """The connection was replaced while a batch was in flight: its outcome is not known."""
