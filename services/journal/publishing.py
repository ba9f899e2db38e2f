"""Publishes messages to JOURNAL: the answers of the broker, and the writer that all appends share."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import orjson
import structlog
from nats.aio.subscription import Subscription

from ...schemas.cluster.events import ClusterAssigned
from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.errors import BrokerError, BrokerUnavailable, EntryTooLarge, StorageFull
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.limits import ATOMIC_BATCH
from ...schemas.core.ports import Published
from ...schemas.core.subjects import Family
from ...schemas.settings import ACK_TIMEOUT_S, PUBLISH_DEADLINE_S, PUBLISH_WINDOW
from ..budgets import SPENDER, Spender
from ..ownership import FENCE, Tenure
from ..parts import end_task
from .broker.connection import BrokerConnection, encode_headers, encode_publish

# Reads JetStream's answers to a publish: an ack, a temporary refusal, or a permanent refusal.
#
# Invariant: every answer is one of the kinds below; only an ack is treated as an ack.


DUPLICATE_IN_BATCH: Final = 10_201
"""err_code: a message id of the atomic batch is already used in the stream or in the batch."""
_SINGLES_HELP: Final = frozenset({10_174, 10_177, 10_199, DUPLICATE_IN_BATCH})
"""err_codes of batches whose messages can be published singly: disabled, unsupported header, too large, duplicate id."""
_TRY_AGAIN: Final = frozenset({10_158, 10_176})
"""Temporary err_codes: id in processing elsewhere, batch incomplete (lost by a reconnect, or a full disk)."""
_NO_SPACE: Final = frozenset({10_002, 10_023, 10_028, 10_047, 10_077})
"""err_codes of missing memory, disk or quota. 10077 means any failure of the store, including a full disk."""
_MAKE_ROOM: Final = (
    "free disk space, then restart the node (or your own nats-server), which takes at most 3/4 of the disk that is free at "
    "its start; your own broker may have a smaller max_file_store, or the stream a smaller max_bytes"
)
_TOO_MANY, _UNAVAILABLE = (
    429,
    503,
)  # too many: the batches of all nodes together have reached the server's limit of open batches

_WRONG_SEQUENCE: Final = frozenset({10_071, 10_164})
"""err_codes of a message that expects a wrong last sequence of its subject; the first of them names the current sequence."""
_SEQUENCE: Final = re.compile(r"sequence: (\d+)")

_START: Final = b'{"stream":"JOURNAL","seq":'
_DIGITS: Final = len(_START)


class WrongLastSequence(BrokerError):
    """The last message of the subject is not the expected one; nothing was stored.

    Args:
        last_seq: Sequence of the last message, None if the broker does not name it.
    """

    def __init__(self, message: str, last_seq: int | None) -> None:
        super().__init__(message, hint="read the document again")
        self.last_seq = last_seq


class AckVerdict(Enum):
    """How to proceed after an answer."""

    ACKED = "acked"
    TRY_AGAIN = "try again"
    TRY_SINGLES = "try singles"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AckAnswer:
    """A parsed answer.

    Attributes:
        verdict: How to proceed.
        published: The ack, if there is one.
        count: Number of messages of the acked atomic batch, 0 for a single message.
        error: The error to raise when giving up; None with an ack.
    """

    verdict: AckVerdict
    published: Published | None = None
    count: int = 0
    error: BrokerError | None = None


def plain_seq(data: bytes) -> int | None:
    """The sequence of JOURNAL's common ack ``{"stream":"JOURNAL","seq":N}``; None if it is anything else (0.3 µs)."""
    if data.startswith(_START):
        try:
            return int(data[_DIGITS:-1])
        except ValueError:
            return None  # not the common form: further fields such as duplicate, domain or batch
    return None


def read_answer(data: bytes) -> AckAnswer:
    """Parse any answer to a publish; an empty answer means that no stream has the subject."""
    if not data:
        return _later("no stream takes this subject", "is the stream being created, or the broker starting?")
    try:
        answer: Any = orjson.loads(data)
        error = answer.get("error")
        if error is None:
            published = Published(int(answer["seq"]), bool(answer.get("duplicate", False)))
            return AckAnswer(AckVerdict.ACKED, published, int(answer.get("count", 0)))
        code, kind = int(error.get("code", 0)), int(error.get("err_code", 0))
        text = f"the broker refuses the write: {error.get('description', 'no reason given')} ({kind})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return AckAnswer(AckVerdict.REFUSED, error=BrokerError("the broker's answer to a write is not an ack"))
    if kind in _SINGLES_HELP:
        return AckAnswer(AckVerdict.TRY_SINGLES, error=BrokerError(text))
    if kind in _NO_SPACE:
        return AckAnswer(
            AckVerdict.REFUSED, error=StorageFull(f"the broker's storage is full: {text}", hint=_MAKE_ROOM)
        )
    if kind in _WRONG_SEQUENCE:
        named = _SEQUENCE.search(text)
        return AckAnswer(AckVerdict.REFUSED, error=WrongLastSequence(text, int(named[1]) if named else None))
    if kind in _TRY_AGAIN or code in (_TOO_MANY, _UNAVAILABLE):
        return _later(text, "the broker is busy or recovering; try again")
    return AckAnswer(AckVerdict.REFUSED, error=BrokerError(text, hint="see the broker's log"))


def _later(text: str, hint: str) -> AckAnswer:
    return AckAnswer(AckVerdict.TRY_AGAIN, error=BrokerUnavailable(text, hint=hint))


# Atomic batches of JetStream ≥ 2.12: all messages are stored, or none.


MAX_ATOMIC: Final = 1_000
"""Maximum number of messages of a batch by the server's default (measured: 1,000 pass, 1,001 do not)."""
PLACES: Final = 32
"""Maximum number of this writer's batches in flight: the server keeps at most 50 batches of a stream open, including
batches of other processes.
"""
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
EXPECTED_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Names the subject whose last sequence is expected, if that is not the message's own; nats-server 2.12 and newer."""
ASSIGNMENTS: Final = f"{Family.CONTROL.value}.{SYSTEM_WORKSPACE}.{ClusterAssigned.ENTRY_TYPE}"
"""Subject of the assignments of slots to nodes."""
FENCED_S: Final = 10.0
"""Seconds until a decision gives up that meets decisions of other nodes in flight, of which a cluster of servers takes one
at a time.
"""
FENCE_PAUSE_S: Final = 0.01
"""Seconds between its attempts; the decision of another node is stored within 3 ms."""
BATCH_HEAD: Final = 128
"""Maximum bytes that the headers of a batch add to a message."""
_END: Final = len(b"\r\n")
"""Bytes of the blank line that ends a header block."""
_ID_BYTES: Final = 12
"""Random bytes of a batch id; the server takes at most 64 characters (measured)."""


@dataclass(slots=True)
class EncodedMessage:
    """A message with encoded headers."""

    subject: str
    head: bytes
    body: bytes

    @classmethod
    def of(cls, message: OutgoingMessage) -> EncodedMessage:
        """``message``, encoded."""
        return cls(message.subject, encode_headers(message.headers), message.body)


def expecting(message: EncodedMessage, last_seq: int) -> EncodedMessage:
    """``message`` with the condition that ``last_seq`` is the last message of its subject."""
    line = f"{EXPECTED_LAST}: {last_seq}\r\n\r\n"
    return EncodedMessage(message.subject, message.head[:-_END] + line.encode(), message.body)


def fenced(message: EncodedMessage, epoch: int) -> EncodedMessage:
    """``message`` with the condition that the assignment at ``epoch`` is the last one."""
    lines = f"{EXPECTED_LAST}: {epoch}\r\n{EXPECTED_OF}: {ASSIGNMENTS}\r\n\r\n"
    return EncodedMessage(message.subject, message.head[:-_END] + lines.encode(), message.body)


def refuse_oversized(messages: Sequence[EncodedMessage], limit: int) -> None:
    """Refuse messages above the broker's size limit, because the broker would close the connection.

    Raises:
        EntryTooLarge: If a message exceeds the limit.
    """
    for message in messages:
        if len(message.body) + len(message.head) + BATCH_HEAD > limit:
            raise EntryTooLarge(
                f"a message for {message.subject} has {len(message.body):,} bytes, the broker takes {limit:,}",
                hint="raise max_payload of the broker to 1 MiB",
            )


def batch_commands(messages: Sequence[EncodedMessage], reply: str) -> Iterator[bytes]:
    """The protocol commands of one attempt to publish a batch, with a new batch id.

    Args:
        messages: 2 to ``MAX_ATOMIC``.
        reply: Subject for the answers to the first message and to the commit.
    """
    batch_id = secrets.token_urlsafe(_ID_BYTES)
    last = len(messages)
    for number, message in enumerate(messages, 1):
        commit = f"{BATCH_COMMIT}: 1\r\n" if number == last else ""
        lines = f"{BATCH_ID}: {batch_id}\r\n{BATCH_SEQUENCE}: {number}\r\n{commit}\r\n"
        head = message.head[:-_END] + lines.encode()
        yield encode_publish(message.subject, reply if number in (1, last) else "", head, message.body)


def batch_acks(answer: AckAnswer, count: int) -> list[Published] | None:
    """The acks of a batch of ``count`` messages that the broker stored, in order.

    None if the messages must be published singly: an id is already used, the server does not accept a batch of this
    size, or it does not support batches and stored the messages one by one.
    """
    if answer.published is None or answer.count != count:
        return None
    first = answer.published.seq - count + 1
    return [Published(first + n, duplicate=False) for n in range(count)]


# Concurrent publishes share an atomic batch, and so one fsync of the broker.


# The pipelined writer: many publishes are in flight, and each call returns after the ack of its message.
#
# It does not use ``js.publish``: one shared inbox and a future per call cost 12 µs a message, nats-py's methods 24 to
# 135 µs (facts/nats.md). Invariants: a publish returns only after the broker's ack; a resent message keeps its ``Nats-
# Msg-Id``, so that a lost ack never causes an entry to be stored twice; a cancelled caller frees its place in the
# window.


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
        self._fencing = asyncio.Lock()
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
        fence = FENCE.get()
        spender = SPENDER.get()
        free = fence is None or not message.subject.startswith(_FAMILIES)  # other streams have no assignments
        posted = self._post(message) if free else self._post_fenced(message)
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

    async def _post_fenced(self, message: EncodedMessage) -> Published:
        [published] = await self._post_atomic([message])
        return published

    async def _under(
        self,
        fence: Tenure,
        messages: Sequence[EncodedMessage],
        post: Callable[[Sequence[EncodedMessage]], Coroutine[Any, Any, list[Published]]],
    ) -> list[Published]:
        """Publish under the condition that no other node has taken over.

        Raises:
            NotOwner: If another node has.
        """
        give_up = self._loop.time() + FENCED_S
        async with self._fencing:
            while True:
                epoch = fence.epoch()
                try:
                    return await post([fenced(message, epoch) for message in messages])
                except WrongLastSequence as error:
                    if error.last_seq is not None:
                        await fence.renewed(epoch)
                    elif self._loop.time() < give_up:
                        await asyncio.sleep(FENCE_PAUSE_S * (1 + secrets.randbelow(4)))
                    else:
                        raise BrokerUnavailable("too many decisions at once", hint="try again") from None

    async def post_expecting(self, message: EncodedMessage, last_seq: int) -> Published:
        """``post`` with the condition that ``last_seq`` is the last message of its subject (0: the subject has no message).

        It is never part of a batch, in which other messages of the subject would count. After a lost ack, the message
        is resent and refused although it is stored, because the broker checks the sequence before the message id
        (nats-server 2.15).

        Raises:
            WrongLastSequence: If the last message is a different one, which may be this message itself.
        """
        if (fence := FENCE.get()) is not None:
            fence.epoch()  # the broker checks one condition for each message: here that of the message's own subject
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
        fence = FENCE.get()
        if fence is not None and messages:
            return await self._under(fence, messages, self._post_all)
        return await self._post_all(messages)

    async def _post_all(self, messages: Sequence[EncodedMessage]) -> list[Published]:
        if len(messages) > MAX_ATOMIC:
            done: list[Published] = []
            for start in range(0, len(messages), ATOMIC_BATCH):
                done += await self._post_all(messages[start : start + ATOMIC_BATCH])
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
        if FENCE.get() is not None:  # a cluster of servers takes one message of a condition at a time
            return [await self._single(m) for m in messages]
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
