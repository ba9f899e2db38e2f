"""The pipelined writer: many publishes are in flight, and each call returns after the ack of its message.

It does not use ``js.publish``: one shared inbox and a future per call cost 12 µs a message, nats-py's methods 24 to 135
µs (facts/nats.md). Invariants: a publish returns only after the broker's ack; a resent message keeps its
``Nats-Msg-Id``, so that a lost ack never causes an entry to be stored twice; a cancelled caller frees its place in the
window.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog
from nats.aio.subscription import Subscription

from ....schemas.core.derived import OutgoingMessage
from ....schemas.core.errors import BrokerError, BrokerUnavailable
from ....schemas.core.limits import ATOMIC_BATCH
from ....schemas.core.ports import Published
from ....schemas.core.subjects import Family
from ....schemas.settings import ACK_TIMEOUT_S, PUBLISH_DEADLINE_S, PUBLISH_WINDOW
from ...budgets import SPENDER, Spender
from ...endings import end_task
from ..broker.connection import BrokerConnection, encode_headers, encode_publish
from .acks import (
    MAX_ATOMIC,
    PLACES,
    AckVerdict,
    EncodedMessage,
    batch_acks,
    batch_commands,
    expecting,
    plain_seq,
    read_answer,
    refuse_oversized,
)

# Concurrent publishes share an atomic batch, and so one fsync of the broker.


GROUP_MIN: Final = 48
"""With fewer waiting messages, single publishes are faster: a batch costs 8 ms, a single message with fsync 0.17 ms
(measured).
"""
WAITED_S: Final = 1.0
"""A message that has waited this many seconds for the previous group gets its own deadline; an unanswered group takes
30 s.
"""
_log = structlog.get_logger(__name__)


class GroupCommit:
    """Collects messages that are published while the previous group is in flight.

    Args:
        batch: Publishes a group until a deadline; returns None if the messages have to be published singly.
        single: Publishes one message until a deadline, seconds of the loop's clock.
        given_up: Returns the error for a message without an ack.
        deadline_s: Seconds until a group, or a message that waits for a group, gives up.
    """

    def __init__(
        self,
        batch: Callable[[Sequence[EncodedMessage], float], Coroutine[Any, Any, list[Published] | None]],
        single: Callable[[EncodedMessage, float], Coroutine[Any, Any, Published]],
        given_up: Callable[[], BrokerError],
        deadline_s: float,
    ) -> None:
        self._batch = batch
        self._single = single
        self._given_up = given_up
        self._deadline_s = deadline_s
        self._waiting: list[tuple[EncodedMessage, asyncio.Future[Published], float]] = []
        self._committer: asyncio.Task[None] | None = None

    async def publish(self, message: EncodedMessage) -> Published:
        """Publish one message to JOURNAL together with other current messages; its size must be allowed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Published] = loop.create_future()
        self._waiting.append((message, future, loop.time() + self._deadline_s))
        if self._committer is None:
            self._committer = loop.create_task(self._commit_groups(), name="journal writer group commit")
        return await future

    async def _commit_groups(self) -> None:
        try:
            await asyncio.sleep(0)  # calls in the same iteration of the event loop join the group
            while self._waiting:
                group, self._waiting = self._waiting[:ATOMIC_BATCH], self._waiting[ATOMIC_BATCH:]
                await self._commit([member for member in group if not member[1].done()])
        finally:
            self._committer = None

    async def _commit(self, group: list[tuple[EncodedMessage, asyncio.Future[Published], float]]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline_s
        late = [loop.call_at(due, self._expire, future) for _, future, due in group if due < deadline - WAITED_S]
        try:
            await self._send(group, deadline)
        finally:
            for timer in late:
                timer.cancel()

    def _expire(self, future: asyncio.Future[Published]) -> None:
        if not future.done():
            future.set_exception(self._given_up())

    async def _send(
        self, group: list[tuple[EncodedMessage, asyncio.Future[Published], float]], deadline: float
    ) -> None:
        messages = [message for message, _, _ in group]
        outcomes: Sequence[Published | BaseException] | None = None
        if len(group) >= GROUP_MIN:
            try:
                outcomes = await self._batch(messages, deadline)
            except BrokerUnavailable as error:
                outcomes = [error] * len(group)
            except (
                Exception
            ) as error:  # one message may be the cause; published singly, each message gets its own result
                _log.warning("writer.group_refused", messages=len(group), error=type(error).__name__)
        if outcomes is None:
            flights = (self._single(m, deadline) for m in messages)
            outcomes = await asyncio.gather(*flights, return_exceptions=True)
        for (_, future, _), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


SWEEP_S: Final = 0.25
"""Seconds between checks for unacked messages: one timer for all messages saves 2 µs per message."""
RETRY_S: Final = 0.2
"""Seconds until a message is resent after a temporary refusal."""
_FAMILIES: Final = tuple(f"{family}." for family in Family)
"""Prefixes of JOURNAL's subjects; a batch with a message of another stream would never be complete."""


_P = TypeVar("_P")


class _Flight:
    """An unacked message or batch; times are seconds of the event loop's clock."""

    __slots__ = ("batch", "command", "deadline", "future", "resend_at", "trouble")

    def __init__(
        self,
        command: bytes,
        future: asyncio.Future[Any],
        resend_at: float,
        deadline: float,
        batch: Sequence[EncodedMessage] = (),
    ) -> None:
        self.command = command
        self.batch = batch
        self.future = future
        self.resend_at = resend_at
        self.deadline = deadline
        self.trouble: BrokerError | None = None


class Writer:
    """Publishes to JetStream with a window of unacked messages; implements ``schemas.core.ports.Publisher``.

    Args:
        client: A connection from ``connection.connect``.
        atomic: Whether the stream takes atomic batches (``DeclaredStreams.atomic``).
        group_commit: Whether concurrent publishes to JOURNAL share a batch, hence one fsync: for the ``durable`` profile.
        window: Maximum number of unacked messages; further callers wait.
        ack_timeout_s: Seconds until an unacked message is resent.
        deadline_s: Seconds until a publish gives up.
        storage: Returns why the broker cannot store, without asking the broker; called when a publish gives up.
    """

    def __init__(
        self,
        client: BrokerConnection,
        *,
        atomic: bool = False,
        group_commit: bool = False,
        window: int = PUBLISH_WINDOW,
        ack_timeout_s: float = ACK_TIMEOUT_S,
        deadline_s: float = PUBLISH_DEADLINE_S,
        storage: Callable[[], BrokerUnavailable | None] = lambda: None,
    ) -> None:
        self._client = client
        self._atomic = atomic
        self._batch_places = asyncio.Semaphore(PLACES)
        self._group = (
            GroupCommit(self._fly_batch, self._fly, self._given_up, deadline_s) if atomic and group_commit else None
        )
        self._free = window
        self._window = window
        self._ack_timeout_s = ack_timeout_s
        self._deadline_s = deadline_s
        self._storage = storage
        self._flights: dict[bytes, _Flight] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._inbox = ""
        self._token = 0
        self._acked = 0
        self._subscription: Subscription | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._forget_reconnects: Callable[[], None] = lambda: None
        self._look_now = asyncio.Event()
        self._idle = asyncio.Event()
        self._closed = True

    @property
    def client(self) -> BrokerConnection:
        """The connection."""
        return self._client

    @property
    def atomic(self) -> bool:
        """Whether lists are published as atomic batches."""
        return self._atomic

    @property
    def in_flight(self) -> int:
        """The number of unacked messages and batches."""
        return self._window - self._free

    @property
    def acked(self) -> int:
        """The number of acked messages and batches."""
        return self._acked

    async def open(self) -> None:
        """Subscribe to the acks."""
        self._loop = asyncio.get_running_loop()
        self._inbox = self._client.new_inbox() + "."
        self._inbox_length = len(self._inbox)
        self._subscription = await self._client.divert(self._inbox + "*", self._on_ack)
        self._body_limit = self._client.max_payload // 2
        self._forget_reconnects = self._client.on_reconnect(self._resend_all)
        self._sweeper = asyncio.create_task(self._sweep(), name="journal writer sweeper")
        self._closed = False

    async def close(self) -> None:
        """Accept no more messages, and wait for the messages in flight, each until its deadline."""
        if self._closed:
            return
        self._closed = True
        while self._free < self._window:
            self._idle.clear()
            await self._idle.wait()
        self._forget_reconnects()
        await end_task(self._sweeper)
        if self._subscription is not None:
            await self._client.release(self._subscription)

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> Published:
        """Publish one message and return after its ack.

        Args:
            subject: A validated subject.
            body: The body.
            headers: Headers; without ``Nats-Msg-Id`` a lost ack may store the message twice.

        Raises:
            BrokerUnavailable: If no ack came within the deadline.
            BrokerError: If the broker refuses the message.
            EntryTooLarge: If the message exceeds the broker's limit.
        """
        return await self.post(EncodedMessage(subject, encode_headers(headers), body))

    def post(self, message: EncodedMessage) -> Coroutine[Any, Any, Published]:
        """``publish`` of a message whose headers are encoded already; must be awaited at once."""
        spender, posted = SPENDER.get(), self._post(message)  # no coroutine around the common case
        return posted if spender is None else _spending(spender, [message], posted, _seq_of)

    async def _post(self, message: EncodedMessage) -> Published:
        if self._closed:  # from here on a copy of ``_take_place``, which saves a call for every entry
            raise BrokerUnavailable("the writer is closed", hint="the service is starting or stopping")
        deadline = self._loop.time() + self._deadline_s
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_place(deadline)
        try:
            if self._group is not None and message.subject.startswith(_FAMILIES):
                if len(message.body) > self._body_limit:  # checked here, so that only its own caller fails
                    refuse_oversized([message], self._client.max_payload)
                return await self._group.publish(message)
            return await self._fly(message, deadline)
        finally:
            if self._queue or self._closed:
                self._give_place_on()
            else:
                self._free += 1  # the common case, inlined

    async def post_expecting(self, message: EncodedMessage, last_seq: int) -> Published:
        """``post`` with the condition that ``last_seq`` is the last message of its subject (0: the subject has no message).

        It is never part of a batch, in which other messages of the subject would count. After a lost ack, the message
        is resent and refused although it is stored, because the broker checks the sequence before the message id
        (nats-server 2.15).

        Raises:
            WrongLastSequence: If the last message is a different one, which may be this message itself.
        """
        spender, single = SPENDER.get(), self._single(expecting(message, last_seq))
        return await (single if spender is None else _spending(spender, [message], single, _seq_of))

    async def publish_atomic(self, messages: Sequence[OutgoingMessage]) -> list[Published]:
        """Publish all or nothing if the server supports it, else one by one, pipelined; returns the acks in the same order.

        The broker refuses a batch with an id that is already used; its messages are then published one by one, which is
        safe, because used ids are acked as duplicates. More than 1,000 messages are sent in several batches.

        Raises:
            BrokerUnavailable: If no ack came within the deadline; the call can be repeated with the same ids.
            BrokerError: If the broker refuses.
            EntryTooLarge: If a message exceeds the broker's limit.
        """
        return await self.post_atomic([EncodedMessage.of(message) for message in messages])

    async def post_atomic(self, messages: Sequence[EncodedMessage]) -> list[Published]:
        """``publish_atomic`` for messages with encoded headers."""
        spender = SPENDER.get()
        if spender is None or not messages:
            return await self._post_atomic(messages)
        return await _spending(spender, messages, self._post_atomic(messages), lambda acks: acks[-1].seq)

    async def _post_atomic(self, messages: Sequence[EncodedMessage]) -> list[Published]:
        if len(messages) > MAX_ATOMIC:
            done: list[Published] = []
            for start in range(0, len(messages), ATOMIC_BATCH):
                done += await self._post_atomic(messages[start : start + ATOMIC_BATCH])
            return done
        refuse_oversized(messages, self._client.max_payload)
        if self._atomic and len(messages) > 1:
            published = await self._batch(messages)
            if published is not None:
                return published
        return await self._singles(messages)

    async def _batch(self, messages: Sequence[EncodedMessage]) -> list[Published] | None:
        deadline = await self._take_place()
        try:
            return await self._fly_batch(messages, deadline)
        finally:
            self._give_place_on()

    async def _singles(self, messages: Sequence[EncodedMessage]) -> list[Published]:
        tasks = [asyncio.ensure_future(self._single(m)) for m in messages]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _single(self, message: EncodedMessage) -> Published:
        deadline = await self._take_place()
        try:
            return await self._fly(message, deadline)
        finally:
            self._give_place_on()

    async def _fly(self, message: EncodedMessage, deadline: float) -> Published:
        body = message.body
        if len(body) > self._body_limit:
            refuse_oversized([message], self._client.max_payload)
        self._token += 1
        key = b"%d" % self._token
        command = encode_publish(message.subject, f"{self._inbox}{self._token}", message.head, body)
        future: asyncio.Future[Published] = self._loop.create_future()
        flight = _Flight(command, future, deadline - self._deadline_s + self._ack_timeout_s, deadline)
        self._flights[key] = flight
        try:
            client = self._client
            if client.is_connected:
                if client.send(command):
                    await client.relieve()
            elif client.is_closed:
                raise BrokerUnavailable("the connection to the broker is closed")
            published = await future
            self._acked += 1
            return published
        finally:
            del self._flights[key]

    async def _fly_batch(self, messages: Sequence[EncodedMessage], deadline: float) -> list[Published] | None:
        """Publish all or nothing; None if the messages must be published singly (``batch_acks``)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._batch_places.acquire()
        except TimeoutError:
            raise self._given_up() from None
        self._token += 1
        key = b"%d" % self._token
        flight = _Flight(b"", self._loop.create_future(), 0.0, deadline, messages)
        self._flights[key] = flight
        try:
            await self._send_batch(key, flight)
            published: list[Published] | None = await flight.future
            self._acked += published is not None
            return published
        finally:
            del self._flights[key]
            self._batch_places.release()

    async def _send_batch(self, key: bytes, flight: _Flight) -> None:
        client = self._client
        if not client.is_connected:
            return  # sent when the connection is back; fails if it is closed
        flight.resend_at = math.inf
        for command in batch_commands(flight.batch, self._inbox + key.decode()):
            if client.send(command):
                await client.relieve()
        if flight.resend_at:  # otherwise the connection was replaced meanwhile
            flight.resend_at = self._loop.time() + self._ack_timeout_s

    def _on_ack(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        flight = self._flights.get(subject[self._inbox_length :])
        if flight is None or flight.future.done():
            return  # answered twice, because it was sent twice
        count = len(flight.batch)
        seq = plain_seq(data)
        if seq is not None and not count:
            flight.future.set_result(Published(seq, False))
            return
        if count and not data and headers is None:
            return  # the batch is open; if no stream had the subject, the headers would contain a status
        answer = read_answer(data)
        if answer.verdict is AckVerdict.TRY_AGAIN:
            flight.trouble = answer.error
            flight.resend_at = self._loop.time() + RETRY_S
        elif count and answer.verdict in (AckVerdict.ACKED, AckVerdict.TRY_SINGLES):
            flight.future.set_result(batch_acks(answer, count))
        elif answer.published is not None:
            flight.future.set_result(answer.published)
        else:
            flight.future.set_exception(answer.error or BrokerError("the broker refuses the write"))

    def _resend_all(self) -> None:
        for flight in self._flights.values():
            flight.resend_at = 0.0
        self._look_now.set()

    async def _sweep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._look_now.wait()
            self._look_now.clear()
            now = self._loop.time()
            client = self._client
            for key, flight in list(self._flights.items()):
                if flight.future.done():
                    continue
                if now >= flight.deadline or client.is_closed:
                    flight.future.set_exception(self._given_up(flight.trouble))
                elif now >= flight.resend_at and client.is_connected:
                    if flight.batch:
                        await self._send_batch(key, flight)
                        continue
                    flight.resend_at = now + self._ack_timeout_s
                    client.send(flight.command)

    def _given_up(self, trouble: BrokerError | None = None) -> BrokerError:
        """The error for an unacked message: the cause if the node knows it, else the broker's last answer."""
        full = self._storage() if self._client.is_connected else None
        return full or trouble or self._no_ack()

    def _no_ack(self) -> BrokerUnavailable:
        state = self._client.state
        down = "" if state.connected else f"; not connected since {state.since.isoformat(timespec='seconds')}"
        return BrokerUnavailable(
            f"the broker did not ack within {self._deadline_s:g} s{down}",
            hint="try again with the same id; see crew-journal status",
        )

    async def _take_place(self) -> float:
        """Take a place in the window; returns its deadline in seconds of the loop's clock."""
        if self._closed:
            raise BrokerUnavailable("the writer is closed", hint="the service is starting or stopping")
        deadline = self._loop.time() + self._deadline_s
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_place(deadline)
        return deadline

    async def _wait_for_place(self, deadline: float) -> None:
        place: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._give_place_on()  # the place was assigned while this task was cancelled
            if isinstance(error, TimeoutError):
                raise self._given_up() from None
            raise

    def _give_place_on(self) -> None:
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
        if self._free == self._window:
            self._idle.set()


def _seq_of(published: Published) -> int:
    return published.seq


async def _spending(
    spender: Spender, messages: Sequence[EncodedMessage], post: Coroutine[Any, Any, _P], seq_of: Callable[[_P], int]
) -> _P:
    """Count the write against the token's budgets, then post; raises as ``Spender.admit``."""
    size = sum(len(message.body) for message in messages)
    try:
        spender.begin(size)
    except BaseException:
        post.close()
        raise
    try:
        acked = await post
    finally:
        spender.end(size)
    spender.charge(seq_of(acked), len(messages), size)
    return acked
