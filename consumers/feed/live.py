"""The live feed: passes new messages of JOURNAL in order to one handler, with FastStream.

Ack policies ALL and MANUAL: after the handler has returned, the last message of the batch is acked. Invariant: the
handler gets every message from ``start_seq`` on at least once and in order; a batch that fails is retried before any
later batch. If the sequence has a gap, the feed reads the missing messages from the stream. If the durable is deleted,
differs from its configuration or has delivered messages that never arrived, the feed recreates it after the last
handled message. That message, not the ack, determines where the consumer continues.

When the feed is far behind (a bulk import), it calls ``catch_up``, which reads the stream like a rebuild and decodes
one batch while the previous one is committed. Then the feed restarts its consumer at the end. This is four times as
fast as batch by batch.

Gaps are read from the stream instead of redelivered, because nats-py drops a stored message with a header ``Status`` on
every delivery. ``jetstream`` describes this and other traps, and the ack wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import structlog
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.security import NatsCredentials, NatsToken
from faststream.security import BaseSecurity, SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy as NatsAckPolicy
from nats.js.api import ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from ...schemas.core.broker_address import NO_FILES, LoginFiles
from ...schemas.core.errors import BrokerUnavailable
from ...schemas.core.subjects import JOURNAL_STREAM, Family
from ...schemas.settings import BATCH_BYTES, BATCH_MESSAGES, BATCH_WAIT_S
from ..endings import end_task
from .jetstream import (
    ENDED,
    FEED_ACK_PENDING,
    FEED_ACK_WAIT_S,
    FEED_EXPIRES_S,
    GRACE_S,
    HEARTBEAT,
    PULL_BYTES,
    REFUSED_PAUSE_S,
    UNLIMITED,
    is_full,
    next_subject,
    pull_request,
    status_code_of,
)
from .messages import RawMessage, position_of, raw_message
from .replay import replay

# The live feed's pull subscription: a message of a quiet stream is passed on at once, messages of a busy stream in
# batches.


class Pulls:
    """A pull subscription that returns batches.

    Args:
        client: FastStream's connection.
        stream: Name of the stream.
        durable: Name of the consumer; it need not exist yet.
        batch: Maximum number of messages of a batch.
        spacing_s: Minimum seconds between the ends of two batches that are not full.
        patience_s: The same if the batch has entries and derived facts alone, and no task waits for one of them.
        awaited: Whether a task waits for a sequence from the first to the last of these.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        durable: str,
        *,
        batch: int,
        spacing_s: float,
        patience_s: float,
        awaited: Callable[[int, int], bool],
    ) -> None:
        self._client = client
        self._subject = next_subject(stream, durable)
        self._batch = batch
        self._spacing_s = spacing_s
        self._patience_s = patience_s
        self._awaited = awaited
        self._held: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._asked = 0  # messages of the open request that have not arrived
        self._asked_at = 0.0
        self._refused_at = 0.0
        self._ended_at = 0.0  # when the last batch was returned
        self._inbox = ""
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Subscribe."""
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox, cb=self._on_message, pending_bytes_limit=0)

    def request_again(self) -> None:
        """Forget the open request, because its connection is closed."""
        self._asked = 0
        self._arrived.set()

    def look(self) -> None:
        """Ask again whether a task waits for a message of the batch."""
        self._arrived.set()

    async def next_batch(self) -> list[Msg]:
        """The next messages, at least one; waits without a time-out."""
        loop = asyncio.get_running_loop()
        while not self._held:
            await self._arrival(REFUSED_PAUSE_S)
        began = loop.time()
        patient = self._patience_s > self._spacing_s
        messages: list[Msg] = []
        size = 0
        while True:
            while self._held and len(messages) < self._batch and size < BATCH_BYTES:
                messages.append(self._held.popleft())
                size += len(messages[-1].data)
                patient = patient and messages[-1].subject.startswith(_PATIENT)
            last = position_of(messages[-1].reply)
            patient = patient and not self._awaited(position_of(messages[0].reply).seq, last.seq)
            ends_at = max(began, self._ended_at + (self._patience_s if patient else self._spacing_s))
            # more time if the broker had more messages when it sent the last one
            left = ends_at + (self._spacing_s if last.pending else 0.0) - loop.time()
            if len(messages) >= self._batch or size >= BATCH_BYTES or left <= 0:
                self._ended_at = loop.time()
                return messages
            await self._arrival(left)

    async def unsubscribe(self) -> None:
        """End the subscription; buffered messages are delivered again to the next consumer."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _arrival(self, seconds: float) -> None:
        """Wait until a message arrives, at most ``seconds``."""
        self._arrived.clear()
        await self._ask(asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()

    async def _ask(self, now: float) -> None:
        """Send a request if none is open, unless the broker has just refused one."""
        if self._asked and now - self._asked_at > FEED_EXPIRES_S + GRACE_S:
            self._asked = 0
        if self._asked or now - self._refused_at < REFUSED_PAUSE_S:
            return
        self._asked, self._asked_at = self._batch, now
        request = pull_request(self._batch, FEED_EXPIRES_S, PULL_BYTES)
        try:
            await self._client.publish(self._subject, request, reply=self._inbox)
        except NatsError:  # not connected; the feed's status reports it
            self._asked, self._refused_at = 0, now

    async def _on_message(self, message: Msg) -> None:
        if message.reply:  # only stored messages have a reply subject; status messages of the server have none
            self._held.append(message)
            self._asked = max(0, self._asked - 1)
        else:
            status = status_code_of(message)
            if status != HEARTBEAT and status not in ENDED and not is_full(message):
                self._refused_at = asyncio.get_running_loop().time()
            if status != HEARTBEAT:
                self._asked = 0
        self._arrived.set()


_PATIENT: Final = (f"{Family.JOURNAL}.", f"{Family.DERIVED}.")
"""What may be folded later: decisions and documents may be tokens, or name the nodes that decide."""


# The live feed's durable consumer: its configuration, and when an existing one can be used.


def wanted_consumer(durable: str, start_seq: int) -> ConsumerConfig:
    """The configuration of a consumer of all messages from ``start_seq`` on: ack policy ALL, unlimited deliveries."""
    return ConsumerConfig(
        name=durable,
        durable_name=durable,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start_seq,
        ack_policy=NatsAckPolicy.ALL,
        ack_wait=FEED_ACK_WAIT_S,
        max_deliver=UNLIMITED,
        max_ack_pending=FEED_ACK_PENDING,
    )


def agrees(info: ConsumerInfo, durable: str, start_seq: int) -> bool:
    """Whether a consumer is configured as wanted, has acked all messages before ``start_seq`` and delivered none after."""
    wanted, config = wanted_consumer(durable, start_seq), info.config
    same = (
        config.ack_policy == wanted.ack_policy
        and config.max_ack_pending == wanted.max_ack_pending
        and not config.filter_subject
        and not config.filter_subjects
    )
    delivered, floor = info.delivered, info.ack_floor
    return (
        same
        and delivered is not None
        and floor is not None
        and delivered.stream_seq == floor.stream_seq == start_seq - 1
        and not info.num_ack_pending
    )


WATCH_S: Final = 1.0
"""Seconds between checks whether the durable was deleted."""
LOST_AFTER_S: Final = 2.0
"""Seconds after which a delivery that has not arrived counts as lost; a full batch takes 0.1 s on a busy machine."""
FAR_BEHIND: Final = 2 * BATCH_MESSAGES
"""Minimum number of pending messages for ``catch_up``, which has to create two consumers (about 5 ms)."""
CATCH_UP_AT_ONCE: Final = 20_000
"""Messages of one ``catch_up``, about 2 s; afterwards the feed checks whether it has to stop."""
BACKOFF_FIRST_S: Final = 0.1
"""Seconds before a failed batch is retried; doubled up to BACKOFF_LAST_S."""
BACKOFF_LAST_S: Final = 5.0
RECONNECT_WAIT_S: Final = 0.25
STOP_S: Final = 10.0
"""Seconds for which ``stop`` waits for a running handler."""

Handler = Callable[[list[RawMessage]], Awaitable[None]]
CatchUp = Callable[[int, Callable[[int, int], None]], Awaitable[None]]
"""``(last_seq, progress)``: handles the stream's messages from the handler's position to ``last_seq``, and reports
progress ``(done, total)`` in sequences after each commit.
"""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The state of the feed.

    Attributes:
        state: ``running``, ``waiting`` (the handler or the broker fails and the feed retries) or ``stopped``.
        seq: Last sequence that the handler has finished.
        lag: Number of later messages in the stream, by the broker's last report.
        recreated: Times the durable was recreated since the start.
        last_error: The current failure, None if there is no failure.
        since: UTC time at which the failure began.
    """

    state: str
    seq: int
    lag: int
    recreated: int
    last_error: str | None
    since: datetime | None


class LiveFeed:
    """Feeds one handler from a durable consumer.

    Args:
        nats_url: ``nats://HOST:PORT``; several servers of a cluster are separated by commas.
        user: User at the broker, None if the broker requires no user.
        password: Its password; without one the user is a token.
        handler: Takes a batch and returns after its commit. Any exception counts as a fault of the environment, and the
            batch is retried.
        start_seq: First sequence to deliver: the checkpoint + 1.
        durable: Name of the consumer.
        catch_up: Called when the feed is far behind; None to always proceed batch by batch.
        batch: Maximum number of messages of a batch.
        batch_wait_s: Maximum seconds for a batch to fill; on a quiet stream a batch is passed on at once.
        patience_s: The same while no task waits for the batch and it holds no decisions; see ``Pulls``.
        awaited: Whether a task waits until a sequence from the first to the last of these is handled.
        stream: Name of the stream.
        watch_s: Seconds between checks of the durable.
        files: Credentials and certificates.
    """

    def __init__(
        self,
        nats_url: str,
        user: str | None,
        password: str | None,
        *,
        handler: Handler,
        start_seq: int,
        durable: str,
        catch_up: CatchUp | None = None,
        batch: int = BATCH_MESSAGES,
        batch_wait_s: float = BATCH_WAIT_S,
        patience_s: float = 0.0,
        awaited: Callable[[int, int], bool] = lambda _first, _last: False,
        stream: str = JOURNAL_STREAM,
        watch_s: float = WATCH_S,
        files: LoginFiles = NO_FILES,
    ) -> None:
        login = files.options(nats_url)
        self._handler = handler
        self._catch_up = catch_up
        self._next = start_seq
        self._durable = durable
        self._stream = stream
        self._watch_s = watch_s
        self._batch = batch
        self._batch_wait_s = batch_wait_s
        self._patience_s = patience_s
        self._awaited = awaited
        self._pulls: Pulls | None = None
        self._broker = NatsBroker(
            nats_url.split(","),
            security=_security(user, password, files.creds, login.get("tls")),
            name=f"feed {durable}",
            max_reconnect_attempts=-1,  # if nats-py gave up, FastStream's loop would spin
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # annotated int, used as seconds
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            graceful_timeout=STOP_S,
            apply_types=False,
            logger=None,
        )
        self._subscriber = self._broker.subscriber(
            ">",
            durable=durable,
            stream=JStream(stream, declare=False),
            pull_sub=PullSub(batch=True),
            config=wanted_consumer(durable, start_seq),
            ack_policy=AckPolicy.MANUAL,
            decoder=_undecoded,
            no_reply=True,
        )
        self._subscriber(self._on_batch)
        self._lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._lag = 0
        self._recreated = 0
        self._running = False
        self._error: str | None = None
        self._since: datetime | None = None

    def status(self) -> FeedStatus:
        """The state of the feed; needs no network access."""
        state = ("waiting" if self._error else "running") if self._running else "stopped"
        return FeedStatus(state, self._next - 1, self._lag, self._recreated, self._error, self._since)

    async def start(self) -> None:
        """Connect, bring the durable to ``start_seq``, and start.

        Raises:
            nats.errors.Error: If the broker cannot be reached or refuses.
        """
        self._stopping.clear()
        client = await self._broker.connect()
        self._client: Client = client
        self._js: JetStreamContext = client.jetstream()
        await self._agree()
        self._running = True
        self._pulls = Pulls(
            client,
            self._stream,
            self._durable,
            batch=self._batch,
            spacing_s=self._batch_wait_s,
            patience_s=self._patience_s,
            awaited=self._awaited,
        )
        await self._pulls.open()
        # FastStream finds this subscription, creates no other and starts no fetching task; at the end it unsubscribes
        self._subscriber.subscription = self._pulls  # type: ignore[assignment]  # annotated as nats-py's
        await self._broker.start()
        self._subscriber.add_task(self._consume, (self._pulls,))
        self._watcher = asyncio.create_task(self._watch(), name=f"watch of durable {self._durable}")

    def look(self) -> None:
        """Ask ``awaited`` again, because a task has begun to wait."""
        if self._pulls is not None:
            self._pulls.look()

    async def stop(self) -> None:
        """Wait a limited time for the current batch, then disconnect. A batch that keeps failing stays unacked."""
        self._stopping.set()
        if self._watcher is not None:
            await end_task(self._watcher)
            self._watcher = None
        try:
            await self._broker.stop()
        except (NatsError, OSError, TimeoutError) as error:  # nats-py cannot drain a closed connection
            _log.info("feed.not_drained", durable=self._durable, error=type(error).__name__)
            with contextlib.suppress(OSError):  # unsent data is lost
                await self._client.close()
        self._running = False

    async def _consume(self, pulls: Pulls) -> None:
        while self._subscriber.running:
            await self._subscriber.consume(await pulls.next_batch())

    async def _agree(self) -> None:
        """Keep the durable if it stands exactly at our position, else recreate it."""
        info = await self._info()
        if info is not None and agrees(info, self._durable, self._next):
            self._lag = info.num_pending or 0
            return
        await self._recreate("it is new" if info is None else "it disagrees with the checkpoint")
        self._recreated = 0

    async def _recreate(self, why: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self._js.delete_consumer(self._stream, self._durable)
        self._recreated += 1
        wanted = wanted_consumer(self._durable, self._next)
        info = await self._js.add_consumer(self._stream, wanted)
        if not agrees(info, self._durable, self._next):
            # a broker that lost its metadata restores an earlier consumer of this name at its old position
            await self._js.delete_consumer(self._stream, self._durable)
            info = await self._js.add_consumer(self._stream, wanted)
        self._lag = info.num_pending or 0
        _log.info("feed.consumer_created", durable=self._durable, start_seq=self._next, why=why)

    async def _info(self) -> ConsumerInfo | None:
        try:
            info: ConsumerInfo = await self._js.consumer_info(self._stream, self._durable)
        except NotFoundError:
            return None
        return info

    async def _on_batch(self, messages: Sequence[Msg]) -> None:
        async with self._lock:
            if self._stopping.is_set():
                return
            if not messages or not await self._take(messages):
                return
            last = max(messages, key=lambda message: position_of(message.reply).seq)
            try:
                await last.ack()
            except NatsError as error:
                self._note_error(f"ack: {error}")  # the message is delivered again and skipped, because it is handled
            self._lag = position_of(last.reply).pending
            if self._lag >= FAR_BEHIND and self._catch_up is not None:
                await self._run_after(self._catch_up)

    async def _run_after(self, catch_up: CatchUp) -> None:
        """Catch up with the growing stream, then restart the consumer after the last handled message."""

        def progressed(done: int, total: int) -> None:
            self._lag = total - done
            self._next = last - self._lag + 1

        try:
            while (behind := (await self._last_seq()) - self._next + 1) > self._batch and not self._stopping.is_set():
                last = self._next - 1 + min(behind, CATCH_UP_AT_ONCE)
                if not await self._persist(partial(catch_up, last, progressed), self._next, last):
                    return
                self._next = last + 1
            await self._recreate("it was far behind")
        except (NatsError, JetStreamError) as error:  # the next check of the durable finds missing messages
            self._note_error(f"broker: {error}")

    async def _last_seq(self) -> int:
        return int((await self._js.stream_info(self._stream)).state.last_seq)

    async def _take(self, messages: Sequence[Msg]) -> bool:
        """Pass on new messages in order, including messages read from gaps; False if the feed stops first."""
        due: list[RawMessage] = []
        expected = self._next
        for message in messages:
            position = position_of(message.reply)
            if position.seq < expected:
                continue  # delivered again
            if position.seq > expected:  # messages between were lost in delivery or deleted from the stream
                if not await self._handle_all(due) or not await self._read(expected, position.seq - 1):
                    return False
                due = []
            due.append(raw_message(position, message.subject, message.headers, message.data))
            expected = position.seq + 1
        return await self._handle_all(due)

    async def _handle_all(self, due: Sequence[RawMessage]) -> bool:
        for start in range(0, len(due), self._batch):  # nats-py may return one message more than requested
            if not await self._handle(list(due[start : start + self._batch])):
                return False
        return True

    async def _read(self, first_seq: int, last_seq: int) -> bool:
        """Pass on the stream's messages from ``first_seq`` to ``last_seq``; False if the feed stops first."""
        async with contextlib.aclosing(
            replay(self._client, first_seq, last_seq, batch=self._batch, stream=self._stream)
        ) as batches:
            try:
                async for batch in batches:
                    if not await self._handle(batch):
                        return False
            except BrokerUnavailable as error:
                self._note_error(f"broker: {error}")
                return False
        return True

    async def _handle(self, due: list[RawMessage]) -> bool:
        """Pass the batch to the handler until the handler succeeds; False if the feed stops first."""
        last = due[-1].seq
        if not await self._persist(lambda: self._handler(due), due[0].seq, last):
            return False
        self._next = last + 1
        return True

    async def _persist(self, work: Callable[[], Awaitable[None]], first_seq: int, last_seq: int) -> bool:
        """Retry ``work`` until it succeeds; False if the feed stops first."""
        pause = BACKOFF_FIRST_S
        while True:
            try:
                await work()
            except Exception as error:  # any error is retried, because skipping the batch would lose it
                self._note_error(f"{type(error).__name__}: {error}")
                _log.error(
                    "feed.batch_failed",
                    durable=self._durable,
                    first_seq=first_seq,
                    last_seq=last_seq,
                    error=type(error).__name__,
                    retry_in_s=pause,
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()
                if self._stopping.is_set():
                    return False
                pause = min(2 * pause, BACKOFF_LAST_S)
            else:
                self._clear_error()
                return True

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        stuck_at = 0
        since: float | None = None  # time since which deliveries are missing
        while True:
            await asyncio.sleep(self._watch_s)
            try:
                info = await self._info()
                if self._lock.locked():  # a running handler reports its own faults
                    since = None
                    continue
                async with self._lock:
                    delivered = None if info is None else info.delivered
                    if info is None:
                        await self._recreate("it was deleted")
                    elif delivered is None or delivered.stream_seq < self._next:
                        self._lag = (info.num_pending or 0) + (info.num_ack_pending or 0)
                        since = None
                    elif since is None or stuck_at != self._next:
                        stuck_at, since = self._next, loop.time()
                    elif loop.time() - since > LOST_AFTER_S:
                        since = None
                        if await self._read(self._next, delivered.stream_seq):
                            self._next = max(self._next, delivered.stream_seq + 1)
                            await self._recreate("deliveries were lost")
            except (NatsError, JetStreamError, TimeoutError) as error:
                self._note_error(f"broker: {error}")
            else:
                self._clear_error()

    def _note_error(self, error: str) -> None:
        self._error = error
        self._since = self._since or datetime.now(UTC)

    def _clear_error(self) -> None:
        self._error = self._since = None

    async def _on_error(self, error: Exception) -> None:
        self._note_error(f"broker: {str(error) or type(error).__name__}")

    async def _on_disconnect(self) -> None:
        self._note_error("broker: disconnected")

    async def _on_reconnect(self) -> None:
        if self._pulls is not None:
            self._pulls.request_again()
        self._clear_error()


async def _undecoded(message: Any) -> Any:
    return message.raw_message


def _security(
    user: str | None, password: str | None, creds: str | None, context: ssl.SSLContext | None
) -> BaseSecurity | None:
    if creds is not None:
        return NatsCredentials(creds, ssl_context=context)
    if user is None:
        return None if context is None else BaseSecurity(ssl_context=context)
    if password is None:
        return NatsToken(user, ssl_context=context)
    return SASLPlaintext(username=user, password=password, ssl_context=context)
