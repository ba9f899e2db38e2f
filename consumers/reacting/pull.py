"""A durable pull consumer that several processes share, for reactors.

nats-py's ``fetch`` has traps (``feed/jetstream``). Here a request for several messages waits only for a short time; a
long request is for a single message. Invariants: one caller at a time holds a message, and the message is redelivered
unless acked; the next ``take`` recovers from a lost connection or a deleted durable; a declared durable equals the
request in all fields.

Filters save work, but a caller must expect other messages, because no filters are set on older servers, which filter
slowly.

Ack policy explicit, ack wait and acks pending set by the caller, unlimited deliveries. Messages come in stream order,
except that returned messages come again between newer messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, RawStreamMsg
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from ...schemas.core.errors import BrokerUnavailable, StreamMismatch
from ...schemas.core.subjects import JOURNAL_STREAM
from ..endings import end_task
from ..feed.jetstream import (
    API_TIMEOUT_S,
    ENDED,
    FILTERS_SINCE,
    GRACE_S,
    NO_RESPONDERS,
    REFUSED_PAUSE_S,
    STATUS_HEADER,
    STATUS_TIMEOUT_S,
    UNLIMITED,
    next_subject,
    pull_request,
    status_code_of,
)
from ..feed.messages import headers_of, status_of
from ..feed.replay import Diverting, end_subscription

# Growing pauses between attempts.
#
# Invariant: the n-th pause in a row lies between half and all of ``min(first * 2**n, last)`` seconds; the random half
# keeps processes that failed together from retrying together. The caller provides the randomness, so tests are exact.


def doubled(first_s: float, last_s: float, times: int) -> float:
    """``first_s`` doubled ``times`` times, at most ``last_s``; seconds."""
    return min(first_s * 2.0 ** min(times, 62), last_s)  # 62: a larger power exceeds any pause


class Backoff:
    """The pauses of one loop.

    Args:
        first_s: Seconds before the second attempt.
        last_s: Upper bound in seconds.
        random: Uniform in [0, 1).
    """

    def __init__(self, first_s: float, last_s: float, random: Callable[[], float]) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._random = random
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures in a row so far."""
        return self._failures

    def next(self) -> float:
        """Count a failure; the seconds to wait before the next attempt."""
        full = doubled(self._first_s, self._last_s, self._failures)
        self._failures += 1
        return full * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Reset after a success: the next failure begins with the first pause."""
        self._failures = 0


# The durables of reactors: their configuration, declaration and backlog.
#
# Invariant: a durable is read back after its declaration; a difference from the request is an error.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Durable:
    """The configuration of a reactor's durable consumer of JOURNAL.

    Attributes:
        name: ``[A-Za-z0-9_-]``; processes that use the same name share the messages.
        filter_subjects: Subjects to deliver, without overlaps. Servers before ``FILTERS_SINCE`` deliver all messages,
            unless the durable is ``sparse``.
        ack_wait_s: Seconds until an unacked message is redelivered; ``in_progress`` restarts this time.
        max_ack_pending: Maximum number of unacked messages of all processes together, including postponed messages.
        description: Shown by the broker's tools.
        sparse: Whether matching messages are rare, so that servers of every version filter: filtering is slow per
            delivered message, but cheaper than reading all.
    """

    name: str
    filter_subjects: tuple[str, ...]
    ack_wait_s: float
    max_ack_pending: int
    description: str = ""
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Remaining:
    """The backlog of a durable, as the broker counts it.

    Attributes:
        acked: Stream sequence up to which everything is acked.
        delivered: Stream sequence up to which everything was delivered at least once.
        unacked: Messages delivered and not acked: being handled, postponed or returned.
        to_come: Messages never delivered.
        waiting: Pull requests that wait at the broker.
    """

    acked: int = 0
    delivered: int = 0
    unacked: int = 0
    to_come: int = 0
    waiting: int = 0


async def declare(client: Client, wanted: Durable) -> None:
    """Create or update the durable, then read it back and compare.

    Raises:
        BrokerUnavailable: If the broker does not answer or has no JOURNAL.
        StreamMismatch: If the broker's durable differs from ``wanted``.
    """
    filters = _filters(client, wanted)
    config = ConsumerConfig(
        name=wanted.name,
        durable_name=wanted.name,
        description=wanted.description or None,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=wanted.ack_wait_s,
        max_deliver=UNLIMITED,
        max_ack_pending=wanted.max_ack_pending,
        filter_subjects=list(filters) or None,
    )
    js = client.jetstream(timeout=API_TIMEOUT_S)
    try:
        await js.add_consumer(JOURNAL_STREAM, config)
        info: ConsumerInfo = await js.consumer_info(JOURNAL_STREAM, wanted.name)
    except (NotFoundError, ServiceUnavailableError) as error:
        raise BrokerUnavailable(
            f"the broker has no stream {JOURNAL_STREAM} for the consumer {wanted.name} at the moment: {error}",
            hint="the journal service declares its streams when it starts: is it running?",
        ) from error
    except APIError as error:
        raise StreamMismatch(
            f"the consumer {wanted.name} cannot be declared: {error.description}",
            hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then recreated from the beginning",
        ) from error
    except (NatsError, TimeoutError) as error:
        raise unavailable(error) from error
    _compare(info.config, wanted, filters)


def _compare(existing: ConsumerConfig, wanted: Durable, wanted_filters: Sequence[str]) -> None:
    filters = existing.filter_subjects or ([existing.filter_subject] if existing.filter_subject else [])
    same = (
        sorted(filters) == sorted(wanted_filters)
        and existing.ack_policy == AckPolicy.EXPLICIT
        and existing.ack_wait == wanted.ack_wait_s
        and existing.max_ack_pending == wanted.max_ack_pending
        and existing.max_deliver in (None, UNLIMITED)
    )
    if not same:
        raise StreamMismatch(
            f"the consumer {wanted.name} is not what was declared (filters, ack wait or acks pending)",
            hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then recreated from the beginning",
        )


def _filters(client: Client, wanted: Durable) -> tuple[str, ...]:
    version = client.connected_server_version
    filters = wanted.sparse or (version.major, version.minor) >= FILTERS_SINCE
    return wanted.filter_subjects if filters else ()


async def info_of(client: Client, durable: str, timeout_s: float = API_TIMEOUT_S) -> ConsumerInfo | None:
    """The state of a durable of JOURNAL at the broker; None if it does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer within ``timeout_s`` seconds.
    """
    return await answered(client.jetstream(timeout=timeout_s).consumer_info(JOURNAL_STREAM, durable))


async def answered(request: Awaitable[T]) -> T | None:
    """The answer to a request to the broker; None if the requested object does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    try:
        return await request
    except NotFoundError:
        return None
    except (NatsError, TimeoutError) as error:
        raise unavailable(error) from error


async def remaining(client: Client, durable: str) -> Remaining:
    """The backlog of a durable of JOURNAL; zeros if the durable does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    info = await info_of(client, durable)
    if info is None:
        return Remaining()
    return Remaining(
        acked=info.ack_floor.stream_seq if info.ack_floor else 0,
        delivered=info.delivered.stream_seq if info.delivered else 0,
        unacked=info.num_ack_pending or 0,
        to_come=info.num_pending or 0,
        waiting=info.num_waiting or 0,
    )


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for a request that the broker did not answer."""
    problem = "no JetStream" if isinstance(error, NoRespondersError) else str(error) or type(error).__name__
    return BrokerUnavailable(f"the broker does not answer: {problem}", hint="see the broker's log; it is tried again")


_ACK_PREFIX: Final = "$JS.ACK."
_log = structlog.get_logger(__name__)


class PullConsumer:
    """Takes messages of a durable.

    Args:
        client: A connection that reconnects without limit; not closed here.
        durable: The durable to consume; created if absent, updated if different.
    """

    def __init__(self, client: Client, durable: Durable) -> None:
        self._client = client
        self._durable = durable
        self._next_subject = next_subject(JOURNAL_STREAM, durable.name)
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._requests = 0
        self._interrupted = False

    async def take_only(self, filter_subjects: tuple[str, ...]) -> None:
        """``open`` with other filters: from now on, only messages on these subjects are delivered.

        Raises:
            BrokerUnavailable, StreamMismatch: As in ``open``.
        """
        self._durable = replace(self._durable, filter_subjects=filter_subjects)
        await self.open()

    async def open(self) -> None:
        """Declare the durable, read it back, and subscribe; may be called again at any time.

        Raises:
            BrokerUnavailable: If the broker does not answer or has no JOURNAL.
            StreamMismatch: If the durable cannot be configured as requested.
        """
        await declare(self._client, self._durable)
        if self._subscription is None:
            self._inbox = self._client.new_inbox()
            try:
                self._subscription = await self._listen(f"{self._inbox}.*")
            except NatsError as error:
                raise unavailable(error) from error

    async def take(self, limit: int, *, wait_s: float, window_s: float) -> list[Msg]:
        """Up to ``limit`` messages, each to be acked or given back by the caller.

        Args:
            limit: The maximum number, at least 1.
            wait_s: Seconds to wait for the first.
            window_s: Seconds to wait for further messages if there are fewer than ``limit``; above 0.

        Returns:
            Messages in stream order, except for messages that were returned before; empty after ``wait_s`` or
            ``interrupt``.

        Raises:
            BrokerUnavailable: If the broker does not answer, or the durable was deleted and cannot be created again.
            StreamMismatch: If the durable cannot be configured as requested.
        """
        self._interrupted = False
        messages = await self._within(window_s, limit)
        if not messages and not self._interrupted:
            messages = await self._within(wait_s, 1)
            if messages and limit > 1:
                messages += await self._within(window_s, limit - 1)
        return messages

    def interrupt(self) -> None:
        """Let a waiting ``take`` return at once."""
        self._arrived.put_nowait(None)

    async def pending(self) -> int:
        """The number of unacked messages: not delivered, being handled, or postponed.

        Raises:
            BrokerUnavailable: If the broker does not answer within a second or the durable was deleted.
        """
        info = await info_of(self._client, self._durable.name, STATUS_TIMEOUT_S)
        if info is None:
            raise BrokerUnavailable(
                f"the consumer {self._durable.name} is gone", hint="the next request for messages creates it again"
            )
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def last_seq(self) -> int:
        """The stream's last sequence, 0 if there is no JOURNAL; raises as ``subject_at``."""
        info = await answered(self._client.jetstream(timeout=API_TIMEOUT_S).stream_info(JOURNAL_STREAM))
        return 0 if info is None else int(info.state.last_seq)

    async def subject_at(self, seq: int) -> str | None:
        """The subject of the message at ``seq``; None if it was deleted.

        Raises:
            BrokerUnavailable: If the broker does not answer.
        """
        message = await answered(self._client.jetstream(timeout=API_TIMEOUT_S).get_msg(JOURNAL_STREAM, seq))
        return None if message is None else message.subject

    async def last_on(self, subject: str) -> RawStreamMsg | None:
        """The last message on a subject, None if it has no message; raises as ``subject_at``."""
        return await answered(self._client.jetstream(timeout=API_TIMEOUT_S).get_last_msg(JOURNAL_STREAM, subject))

    async def close(self) -> None:
        """Unsubscribe and return untaken messages to the broker. The durable stays."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(NatsError):
                await end_subscription(self._client, subscription)
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message is not None and _is_data(message):
                with contextlib.suppress(NatsError):
                    await message.nak()

    async def _listen(self, subject: str) -> Subscription:
        client = self._client

        def sink(subject: bytes, reply: bytes, data: bytes, block: bytes | None) -> None:
            headers: Any = headers_of(block) if reply else {STATUS_HEADER: status_of(block or b"")}
            message = Msg(client, subject.decode(errors="replace"), reply.decode(errors="replace"), data, headers)
            self._arrived.put_nowait(message)

        async def deliver(message: Msg) -> None:
            self._arrived.put_nowait(message)

        if isinstance(client, Diverting):
            return await client.divert(subject, sink)
        return await client.subscribe(subject, cb=deliver)

    async def _request(self, batch: int, seconds: float) -> str:
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        try:
            await self._client.publish(self._next_subject, pull_request(batch, seconds), reply)
        except NatsError as error:
            raise unavailable(error) from error
        return reply

    async def _within(self, seconds: float, limit: int) -> list[Msg]:
        """Up to ``limit`` messages that are available or arrive within ``seconds``."""
        loop = asyncio.get_running_loop()
        messages: list[Msg] = []
        reply = ""
        deadline = 0.0
        while len(messages) < limit:
            if not reply and self._arrived.empty():
                reply = await self._request(limit - len(messages), seconds)
                deadline = loop.time() + seconds + GRACE_S
            try:
                message = await self._arrival(deadline - loop.time() if reply else 0.0)
            except TimeoutError:
                if messages:
                    break
                raise BrokerUnavailable(
                    f"the broker did not answer the consumer {self._durable.name} within {seconds + GRACE_S:g} s",
                    hint="the connection was lost or the broker is down; it is tried again",
                ) from None
            if message is None:
                self._interrupted = True
                break
            if _is_data(message):
                messages.append(message)
            elif message.subject == reply and await self._heed(message):
                break
        return messages

    async def _arrival(self, timeout_s: float) -> Msg | None:
        """The next arrival; None is an interruption. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await self._arrived.get()

    async def _heed(self, message: Msg) -> bool:
        """Handle a status message; returns whether it ends its request."""
        code = status_code_of(message)
        if code in ENDED:
            return True
        if code.startswith("1"):
            return False
        _log.info("pull.refused", durable=self._durable.name, status=code)
        if code == NO_RESPONDERS or await info_of(self._client, self._durable.name) is None:
            await self.open()
        else:
            await asyncio.sleep(REFUSED_PAUSE_S)
        return True


def _is_data(message: Msg) -> bool:
    return message.reply.startswith(_ACK_PREFIX)


# The messages that a reactor holds: their ack wait is renewed while it works, and they are returned unless it settles
# them.


PARTED_KEPT: Final = 8_192
"""Maximum number of remembered messages that were postponed or returned, about 1 MB: twice the maximum of unacked
messages. Messages that another process has settled stay until they are the oldest.
"""
RENEWALS: Final = 3
"""Renewals per ack wait: two may be lost before the broker delivers a message to another process."""


class Leases:
    """The messages that one reactor holds, by stream sequence.

    Args:
        ack_wait_s: Seconds until the broker delivers an unrenewed message to another process.
        name: Name of the reactor's durable; also names the task that renews.
    """

    def __init__(self, ack_wait_s: float, name: str) -> None:
        self._ack_wait_s = ack_wait_s
        self._name = name
        self._held: dict[int, Msg] = {}
        self._parted: dict[int, None] = {}
        """Sequences that were postponed or returned and not delivered again."""

    @property
    def unsettled(self) -> frozenset[int]:
        """Sequences of messages that were received but not acked here: held, postponed or returned."""
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
        """Postpone a message: the broker delivers it again, to any process, in ``delay_s`` seconds."""
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
    """How often a message was delivered, including this delivery."""
    return message.metadata.num_delivered or 1
