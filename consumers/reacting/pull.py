"""A durable pull consumer that several processes share, for reactors.

Why not nats-py's ``fetch``: its requests outlive the call that made them, so messages arrive while the caller is busy
and their ack time runs unseen. Here a request for many stands for a short window only, and the long one is for a single
message. Invariants: a message is taken by one caller at a time and comes back unless acked; a lost connection or a
deleted durable is healed by the next ``take``; what was read back of the durable is what was asked for.

Filters save work, but a caller must be ready for other messages: older servers filter so slowly that we do without.

Ack policy explicit, ack wait and acks pending as the caller states, deliveries unlimited; order is the stream's, but
what was given back comes again between newer messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from crew_journal.consumers.feed.positions import headers_of, status_of
from crew_journal.consumers.feed.replay import Diverting, end_subscription
from crew_journal.schemas.errors import BrokerUnavailable, StreamMismatch
from crew_journal.schemas.subjects import JOURNAL_STREAM

API_TIMEOUT_S: Final = 5.0
"""Seconds for a request to the JetStream API; it takes about a millisecond."""
STATUS_TIMEOUT_S: Final = 1.0
"""Seconds that a status question may take."""
GRACE_S: Final = 0.5
"""Seconds after a request's expiry until it counts as lost with its connection."""
REFUSED_PAUSE_S: Final = 0.25
"""Seconds after a refused request, so that a standing refusal is no busy loop."""
UNLIMITED: Final = -1
FILTERS_SINCE: Final = (2, 12)
"""Server version from which we filter. Measured with 40,000 messages on two subjects: 2.10.27 needs 3-5 ms for each
message a filtered consumer gets (0.03 ms unfiltered), 2.15.1 0.02 ms either way. Versions between were not measured."""
_ACK_PREFIX: Final = "$JS.ACK."
_NANOSECONDS: Final = 1_000_000_000
_STATUS_HEADER: Final = "Status"
_NO_RESPONDERS: Final = "503"
_ROUTINE: Final = frozenset({"404", "408"})
"""No messages; the request expired."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer of JOURNAL as a reactor wants it.

    Attributes:
        name: ``[A-Za-z0-9_-]``; processes that use the same name share the messages.
        filter_subjects: What the caller wants; none overlaps another. Servers before ``FILTERS_SINCE`` deliver all,
            unless it is ``sparse``.
        ack_wait_s: Seconds until an unacked message comes again; ``in_progress`` starts them anew.
        max_ack_pending: Unacked messages of all processes together, those put off included.
        description: Shown by the broker's tools.
        sparse: What is wanted is rare, so servers of every version filter: slow for each message that passes, it is still
            less than reading everything.
    """

    name: str
    filter_subjects: tuple[str, ...]
    ack_wait_s: float
    max_ack_pending: int
    description: str = ""
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a durable has left to do, as the broker counts it.

    Attributes:
        acked: Stream sequence up to which everything is acked.
        delivered: Stream sequence up to which everything was delivered at least once.
        unacked: Messages delivered and not acked: in somebody's hands, put off or given back.
        to_come: Messages never delivered.
        waiting: Requests that stand at the broker.
    """

    acked: int = 0
    delivered: int = 0
    unacked: int = 0
    to_come: int = 0
    waiting: int = 0


class PullConsumer:
    """Takes messages of a durable.

    Args:
        client: A connection that reconnects for ever; not closed here.
        durable: What to consume; made if absent, brought up to date if different.
    """

    def __init__(self, client: Client, durable: Durable) -> None:
        self._client = client
        self._durable = durable
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{JOURNAL_STREAM}.{durable.name}"
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._requests = 0
        self._interrupted = False

    async def open(self) -> None:
        """Declare the durable, read it back, and listen; may be called again at any time.

        Raises:
            BrokerUnavailable: If the broker does not answer or has no JOURNAL.
            StreamMismatch: If the durable cannot be had as wanted.
        """
        info = await self._declare()
        self._compare(info.config)
        if self._subscription is None:
            self._inbox = self._client.new_inbox()
            try:
                self._subscription = await self._listen(f"{self._inbox}.*")
            except NatsError as error:
                raise _unavailable(error) from error

    async def take(self, limit: int, *, wait_s: float, window_s: float) -> list[Msg]:
        """Up to ``limit`` messages, each to be acked or given back by the caller.

        Args:
            limit: At most so many, at least one.
            wait_s: Seconds to wait for the first if there is none.
            window_s: Seconds to let more arrive when there are fewer than ``limit``; above 0.

        Returns:
            Messages in stream order (those given back before apart); none after ``wait_s`` or ``interrupt``.

        Raises:
            BrokerUnavailable: If the broker does not answer, or the durable is gone and cannot be made again.
            StreamMismatch: If it cannot be made again as wanted.
        """
        self._interrupted = False
        taken = await self._within(window_s, limit)
        if not taken and not self._interrupted:
            taken = await self._within(wait_s, 1)
            if taken and limit > 1:
                taken += await self._within(window_s, limit - 1)
        return taken

    def interrupt(self) -> None:
        """Let a waiting ``take`` return at once."""
        self._arrived.put_nowait(None)

    async def pending(self) -> int:
        """Messages not acked yet: not delivered, in somebody's hands, or put off.

        Raises:
            BrokerUnavailable: If the broker does not answer within a second or the durable is gone.
        """
        try:
            js = self._client.jetstream(timeout=STATUS_TIMEOUT_S)
            info = await js.consumer_info(JOURNAL_STREAM, self._durable.name)
        except (NatsError, TimeoutError) as error:
            raise _unavailable(error) from error
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def subject_at(self, seq: int) -> str | None:
        """The subject of the message at ``seq``; None if it was deleted.

        Raises:
            BrokerUnavailable: If the broker does not answer.
        """
        try:
            return (await self._client.jetstream(timeout=API_TIMEOUT_S).get_msg(JOURNAL_STREAM, seq)).subject
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def close(self) -> None:
        """Stop listening and give back what nobody took. The durable stays."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(NatsError):
                await end_subscription(self._client, subscription)
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message is not None and _is_data(message):
                with contextlib.suppress(NatsError):
                    await message.nak()

    async def _declare(self) -> ConsumerInfo:
        wanted = self._durable
        config = ConsumerConfig(
            name=wanted.name,
            durable_name=wanted.name,
            description=wanted.description or None,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=wanted.ack_wait_s,
            max_deliver=UNLIMITED,
            max_ack_pending=wanted.max_ack_pending,
            filter_subjects=list(self._filters()) or None,
        )
        js = self._client.jetstream(timeout=API_TIMEOUT_S)
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
                hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then made anew from the beginning",
            ) from error
        except (NatsError, TimeoutError) as error:
            raise _unavailable(error) from error
        return info

    def _compare(self, found: ConsumerConfig) -> None:
        wanted = self._durable
        filters = found.filter_subjects or ([found.filter_subject] if found.filter_subject else [])
        same = (
            sorted(filters) == sorted(self._filters())
            and found.ack_policy == AckPolicy.EXPLICIT
            and found.ack_wait == wanted.ack_wait_s
            and found.max_ack_pending == wanted.max_ack_pending
            and found.max_deliver in (None, UNLIMITED)
        )
        if not same:
            raise StreamMismatch(
                f"the consumer {wanted.name} is not what was declared (filters, ack wait or acks pending)",
                hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then made anew from the beginning",
            )

    def _filters(self) -> tuple[str, ...]:
        version = self._client.connected_server_version
        filters = self._durable.sparse or (version.major, version.minor) >= FILTERS_SINCE
        return self._durable.filter_subjects if filters else ()

    async def _listen(self, subject: str) -> Subscription:
        client = self._client

        def sink(subject: bytes, reply: bytes, data: bytes, block: bytes | None) -> None:
            headers: Any = headers_of(block) if reply else {_STATUS_HEADER: status_of(block or b"")}
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
        ask = {"batch": batch, "expires": int(seconds * _NANOSECONDS)}
        try:
            await self._client.publish(self._next_subject, json.dumps(ask).encode(), reply)
        except NatsError as error:
            raise _unavailable(error) from error
        return reply

    async def _within(self, seconds: float, limit: int) -> list[Msg]:
        """Up to ``limit`` messages that are there or arrive within ``seconds``."""
        loop = asyncio.get_running_loop()
        taken: list[Msg] = []
        reply = ""
        deadline = 0.0
        while len(taken) < limit:
            if not reply and self._arrived.empty():
                reply = await self._request(limit - len(taken), seconds)
                deadline = loop.time() + seconds + GRACE_S
            try:
                message = await self._arrival(deadline - loop.time() if reply else 0.0)
            except TimeoutError:
                if taken:
                    break
                raise BrokerUnavailable(
                    f"the broker did not answer the consumer {self._durable.name} within {seconds + GRACE_S:g} s",
                    hint="the connection was lost or the broker is down; it is tried again",
                ) from None
            if message is None:
                self._interrupted = True
                break
            if _is_data(message):
                taken.append(message)
            elif message.subject == reply and await self._heed(message):
                break
        return taken

    async def _arrival(self, timeout_s: float) -> Msg | None:
        """The next arrival; None is an interruption. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await self._arrived.get()

    async def _heed(self, message: Msg) -> bool:
        """Act on a status; whether it ends its request."""
        code = (message.headers or {}).get(_STATUS_HEADER, "")
        if code in _ROUTINE:
            return True
        if code.startswith("1"):
            return False
        _log.info("pull.refused", durable=self._durable.name, status=code)
        if code == _NO_RESPONDERS or await self._is_gone():
            await self.open()
        else:
            await asyncio.sleep(REFUSED_PAUSE_S)
        return True

    async def _is_gone(self) -> bool:
        try:
            await self._client.jetstream(timeout=API_TIMEOUT_S).consumer_info(JOURNAL_STREAM, self._durable.name)
        except NotFoundError:
            return True
        except (NatsError, TimeoutError) as error:
            raise _unavailable(error) from error
        return False


async def remaining(client: Client, durable: str) -> Remaining:
    """What a durable of JOURNAL has left to do; nothing if there is no such durable.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    try:
        info: ConsumerInfo = await client.jetstream(timeout=API_TIMEOUT_S).consumer_info(JOURNAL_STREAM, durable)
    except NotFoundError:
        return Remaining()
    except (NatsError, TimeoutError) as error:
        raise _unavailable(error) from error
    return Remaining(
        acked=info.ack_floor.stream_seq if info.ack_floor else 0,
        delivered=info.delivered.stream_seq if info.delivered else 0,
        unacked=info.num_ack_pending or 0,
        to_come=info.num_pending or 0,
        waiting=info.num_waiting or 0,
    )


def _is_data(message: Msg) -> bool:
    return message.reply.startswith(_ACK_PREFIX)


def _unavailable(error: BaseException) -> BrokerUnavailable:
    what = "no JetStream" if isinstance(error, NoRespondersError) else str(error) or type(error).__name__
    return BrokerUnavailable(f"the broker does not answer: {what}", hint="see the broker's log; it is tried again")
