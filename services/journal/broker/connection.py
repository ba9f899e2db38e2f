"""The service's connection to the broker, which reconnects without limit and reports since when it is down.

All connections are made here, because nats-py by default gives up after 60 attempts and leaves a closed client whose
tasks spin (facts/nats.md). Invariant: a connection reconnects for ever, and reading its ``state`` needs no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, CRLF_SIZE, Parser

from ....schemas.core import headers as h
from ....schemas.core.broker_address import NO_FILES, LoginFiles
from ....schemas.core.errors import BrokerError, BrokerUnavailable

# Fast path for received messages: messages of diverted subscriptions are parsed without nats-py.


Sink = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Takes subject, reply subject, body and raw header block of a message."""

_END: Final = b"\r\n"
_WORDS_WITH_REPLY: Final = 6
"""``HMSG <subject> <sid> <reply> <bytes of headers> <bytes of both>``."""
_WORDS: Final = 5
"""An ``HMSG`` without a reply subject, or a ``MSG`` (without headers) with a reply subject."""
_FEWEST_WORDS: Final = 4


class DivertingParser(Parser):
    """nats-py's parser with a fast path for the subscriptions in ``sinks``."""

    def __init__(self, client: Client, sinks: Mapping[bytes, Sink]) -> None:
        """A parser for one client.

        Args:
            client: Handles messages that are not diverted.
            sinks: Subscription id as sent over the connection → sink of its messages; read for every message.
        """
        super().__init__(client)
        self._sinks = sinks

    async def parse(self, data: bytes = b"") -> None:
        """Parse bytes from the socket.

        Raises:
            ProtocolError: If the bytes violate the protocol.
        """
        if self.buf and self.state == AWAITING_CONTROL_LINE:
            data = bytes(self.buf) + data
            self.buf.clear()
        at = 0
        while at < len(data):
            if self.state == AWAITING_MSG_PAYLOAD:
                stop = at + self.needed + CRLF_SIZE - len(self.buf)
            else:
                at = self._divert(data, at)
                stop = data.find(_END, at) + CRLF_SIZE
                if stop < at + CRLF_SIZE:
                    stop = len(data)
            await super().parse(data[at:stop])
            at = stop

    def _divert(self, data: bytes, at: int) -> int:
        """Pass complete diverted messages from ``at`` on to their sinks; returns the offset of the first other byte."""
        sinks, find, size = self._sinks, data.find, len(data)
        while (end := find(_END, at)) > 0:
            words = data[at:end].split(b" ")
            if len(words) < _FEWEST_WORDS or (sink := sinks.get(words[2])) is None:
                return at
            start = end + CRLF_SIZE
            try:
                stop = start + int(words[-1])
                if stop + CRLF_SIZE > size:
                    return at  # the message is incomplete: nats-py's parser waits for the rest
                if words[0] == b"HMSG" and _WORDS <= len(words) <= _WORDS_WITH_REPLY:
                    body = start + int(words[-2])
                    reply = words[3] if len(words) == _WORDS_WITH_REPLY else b""
                    headers: bytes | None = data[start:body]
                elif words[0] == b"MSG" and len(words) <= _WORDS:
                    body, headers = start, None
                    reply = words[3] if len(words) == _WORDS else b""
                else:
                    return at
            except ValueError:
                return at
            sink(words[1], reply, data[body:stop], headers)
            at = stop + CRLF_SIZE
        return at


ATTEMPT_TIMEOUT_S: Final = 2
"""Seconds for one connection attempt; on loopback it takes about 2 ms."""
CONNECT_DEADLINE_S: Final = 10.0
"""Seconds until the first connect gives up."""
RECONNECT_WAIT_S: Final = 0.25
"""Seconds between attempts: a managed broker is back within 100 ms, and a remote broker is not flooded with attempts."""
PENDING_BYTES: Final = 8 * 1024 * 1024
"""Bytes buffered for the socket before a publish waits; 1,024 entries in flight have about 0.7 MB."""
PING_INTERVAL_S: Final = 20
"""Seconds between pings; with two unanswered pings a dead connection is detected within a minute."""
MAX_PINGS_OUTSTANDING: Final = 2
_REFUSED: Final = ("authorization violation", "certificate")
"""What an error says that another attempt would not change."""
CLOSE_S: Final = 2.0
"""Seconds for closing a connection."""
"""Part of nats-server's answer to a wrong user or password, in lower case."""

_log = structlog.get_logger(__name__)


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """The header block of a message.

    Raises:
        BrokerError: If a name or value contains a line break, which could inject further headers, or is not ASCII,
            which nats-py does not decode as text.
    """
    text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n"
    lines = len(headers) + 2
    if text.count("\n") != lines or text.count("\r") != lines or not text.isascii():
        raise BrokerError(
            "a message header holds a line break or other characters than ASCII", hint="this is a defect of the caller"
        )
    return text.encode()


_SALT_LINE: Final = f"{h.SALT}: ".encode()
_SALT_BYTES: Final = 16
_LINE_END: Final = len(b"\r\n")
_SALTS_AT_ONCE: Final = 256
"""Salts that one call of the system's random source makes: a call for each message costs 0.6 µs more."""
_salts: list[bytes] = []


def _salt() -> bytes:
    """16 random bytes as hex."""
    if not _salts:
        made = os.urandom(_SALT_BYTES * _SALTS_AT_ONCE).hex().encode()
        _salts.extend(made[at : at + 2 * _SALT_BYTES] for at in range(0, len(made), 2 * _SALT_BYTES))
    return _salts.pop()


def encode_publish(subject: str, reply: str, headers: bytes, body: bytes) -> bytes:
    """The protocol command that publishes a message, with a salt of its own (``schemas/chain/tree``).

    Args:
        subject: Printable ASCII without blanks.
        reply: Subject for the ack, empty for no ack; generated by the service, so not checked.
        headers: From ``encode_headers``.
        body: The body.

    Raises:
        BrokerError: If the subject could inject protocol commands.
    """
    if not subject or " " in subject or not (subject.isascii() and subject.isprintable()):
        raise BrokerError("the subject of a message holds blanks or other characters than ASCII")
    head = b"".join((headers[:-_LINE_END], _SALT_LINE, _salt(), b"\r\n\r\n"))
    size = len(head)
    return b"".join(
        (f"HPUB {subject} {reply} {size} {size + len(body)}\r\n".encode(), head, body, b"\r\n"),
    )


def _on_wire(sid: int) -> bytes:
    return b"%d" % sid


async def _never(message: Msg) -> None:
    raise AssertionError("diverted messages go to the sink")


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """State of a connection.

    Attributes:
        connected: Whether the connection is up.
        since: UTC time since which it has been up or down.
        reconnects: Number of reconnects.
        last_error: The last error that nats-py reported, None after a reconnect.
    """

    connected: bool
    since: datetime
    reconnects: int
    last_error: str | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BrokerConnection(Client):
    """A nats-py client with a state and with fast paths for sending and receiving; created by ``connect``.

    ``send`` and ``divert`` use private parts of nats-py, because its public methods cost more than the rest of an
    append: a regular expression per header, and for each ack a message object, a queue and a task switch. Tests check
    both against the installed nats-py; all other code uses the public methods.
    """

    def __init__(self, name: str, clock: Callable[[], datetime] = _utc_now) -> None:
        super().__init__()
        self.label = name
        self._clock = clock
        self._state = ConnectionState(False, clock(), 0, None)
        self._listeners: list[Callable[[], None]] = []
        self.ended = asyncio.Event()
        """Set when the connection is closed permanently: by us, or by nats-py after an unrecoverable error."""
        self._sinks: dict[bytes, Sink] = {}
        self._ps = DivertingParser(self, self._sinks)

    @property
    def state(self) -> ConnectionState:
        """The state of the connection; needs no network access."""
        return self._state

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every reconnect; returns a function that unsubscribes."""
        self._listeners.append(listener)

        def forget() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return forget

    def send(self, command: bytes) -> bool:
        """Queue an encoded protocol command; the caller has checked that the client is connected.

        Messages that are queued when the connection is lost may or may not arrive: use it only for messages that are
        resent until they are acked.

        Returns:
            Whether too many bytes are queued; then await ``relieve`` before sending more.
        """
        self._pending.append(command)
        self._pending_data_size += len(command)
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())
        return self._pending_data_size > PENDING_BYTES

    async def close(self) -> None:
        """Close; messages that are queued while the connection is down are lost."""
        if self._flush_queue is None:
            return  # the connection was never opened
        if not self.is_connected:  # nats-py would write to the closed socket, fail, and leave its tasks running
            self._pending.clear()
            self._pending_data_size = 0
        with contextlib.suppress(OSError, TimeoutError):  # the loss of the connection may not be noticed yet
            async with asyncio.timeout(CLOSE_S):  # after a failed TLS handshake nats-py waits for ever
                await super().close()

    async def relieve(self) -> None:
        """Wait until all queued bytes are handed to the socket."""
        await self._flush_pending(force_flush=True)

    async def divert(self, subject: str, sink: Sink, *, queue: str = "") -> Subscription:
        """Subscribe, and pass every parsed message directly to ``sink``, without queue or task.

        Args:
            subject: The subject.
            sink: Called with subject, reply subject, body and raw header block (None without headers); must not block.
            queue: Name of the queue group whose members share the messages; empty for all messages.
        """
        subscription = await self.subscribe(subject, queue, _never)
        self._sinks[_on_wire(subscription._id)] = sink  # noqa: SLF001  # nats-py names its subscriptions nowhere else
        return subscription

    async def release(self, subscription: Subscription) -> None:
        """End a diverted subscription; does nothing if the connection is closed."""
        self._sinks.pop(_on_wire(subscription._id), None)  # noqa: SLF001  # see divert
        with contextlib.suppress(NatsError):
            await subscription.unsubscribe()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        sink = self._sinks.get(_on_wire(sid))
        if sink is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            sink(subject, reply, data, headers)

    def was_connected(self) -> None:
        """Note that the first connect succeeded."""
        self._state = ConnectionState(True, self._clock(), 0, None)

    async def was_disconnected(self) -> None:
        """Note that the connection was lost (nats-py reconnects) or that we closed it."""
        self._state = replace(self._state, connected=False, since=self._clock())
        if self.is_closed:
            return  # closed by us: nothing to log
        _log.warning("nats.disconnected", connection=self.label, error=self._state.last_error)

    async def was_reconnected(self) -> None:
        """Note that the connection is back, and call the listeners."""
        self._state = ConnectionState(True, self._clock(), self._state.reconnects + 1, None)
        _log.info("nats.reconnected", connection=self.label, reconnects=self._state.reconnects)
        for listener in tuple(self._listeners):
            listener()

    async def was_faulted(self, error: Exception) -> None:
        """Note an error that nats-py reports."""
        text = str(error) or type(error).__name__
        repeated = text == self._state.last_error  # a reconnect loop repeats it several times a second
        if self.options["allow_reconnect"] and not repeated:  # ``connect`` raises the error of a first connect
            _log.warning("nats.error", connection=self.label, error=text)
        self._state = replace(self._state, last_error=text)

    async def was_closed(self) -> None:
        """Note that the connection was closed permanently."""
        self._state = replace(self._state, connected=False, since=self._clock())
        self.ended.set()


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def connect(
    url: str,
    user: str | None,
    password: str | None,
    name: str,
    *,
    files: LoginFiles = NO_FILES,
    deadline_s: float = CONNECT_DEADLINE_S,
    clock: Callable[[], datetime] = _utc_now,
) -> BrokerConnection:
    """A connection that reconnects for ever; the first connect fails at once if the server refuses the credentials.

    Args:
        url: ``nats://HOST:PORT``; several servers of a cluster are separated by commas.
        user: User, None if the broker requires no user.
        password: Password; without one the user is a token.
        name: Shown by the broker's monitoring and in our logs.
        files: Credentials and certificates.
        deadline_s: Seconds until the first connect gives up; later connects never give up.
        clock: The time, UTC, for ``since`` of the state.

    Raises:
        BrokerUnavailable: If the broker cannot be reached in time or refuses the credentials.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    before = _cancellations()
    try:
        login = files.options(url)
    except OSError as error:
        why = f"certificates for the broker: {error.strerror or error}"
        raise BrokerUnavailable(why, hint="check nats_ca, nats_cert and nats_key") from None
    while True:
        client = BrokerConnection(name, clock)
        try:
            await client.connect(
                url.split(","),  # in an order by chance: another attempt may try another server
                user=None if password is None else user,
                password=password,
                token=user if password is None else None,
                name=name,
                allow_reconnect=False,  # otherwise nats-py never returns from a failed first connect
                max_reconnect_attempts=1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # annotated int, used as seconds
                connect_timeout=min(ATTEMPT_TIMEOUT_S, deadline_s),  # type: ignore[arg-type]  # the same
                ping_interval=PING_INTERVAL_S,
                max_outstanding_pings=MAX_PINGS_OUTSTANDING,
                pending_size=PENDING_BYTES,
                disconnected_cb=client.was_disconnected,
                reconnected_cb=client.was_reconnected,
                error_cb=client.was_faulted,
                closed_cb=client.was_closed,
                **login,
            )
            if _cancellations() > before:
                raise asyncio.CancelledError  # nats-py swallows it if an answer comes at once (services/parts.py)
        except (NatsError, OSError, TimeoutError) as error:
            await client.close()
            if _cancellations() > before:
                raise asyncio.CancelledError from None
            tried = client.state.last_error  # None if the address is malformed
            why = tried or str(error) or type(error).__name__
            if (
                tried is None
                or any(text in why.lower() for text in _REFUSED)
                or loop.time() + RECONNECT_WAIT_S > deadline
            ):
                raise BrokerUnavailable(
                    f"cannot connect to the broker at {url}: {why}",
                    hint="is it running, and are user and password right?",
                ) from None
            await asyncio.sleep(RECONNECT_WAIT_S)
        except BaseException:
            await client.close()
            raise
        else:
            client.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1}
            client.was_connected()
            return client
