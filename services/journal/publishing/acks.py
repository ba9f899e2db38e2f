"""What JetStream answers to a publish: an ack, a refusal for now, or a refusal for good.

Invariant: every answer is one of the kinds below; only an ack is treated as an ack.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from ....schemas.core.derived import OutgoingMessage
from ....schemas.core.errors import BrokerError, BrokerUnavailable, EntryTooLarge, StorageFull
from ....schemas.core.ports import Published
from ..broker.connection import encode_headers, encode_publish

DUPLICATE_IN_BATCH: Final = 10_201
"""err_code: the atomic batch holds a message id that the broker, or the batch itself, has already."""
_SINGLES_HELP: Final = frozenset({10_174, 10_177, 10_199, DUPLICATE_IN_BATCH})
"""err_codes of batches that single publishes mend: disabled, unsupported header, too large, duplicate id."""
_TRY_AGAIN: Final = frozenset({10_158, 10_176})
"""err_codes that pass: id in processing elsewhere, batch incomplete (lost by a reconnect, or a full disk)."""
_NO_SPACE: Final = frozenset({10_002, 10_023, 10_028, 10_047, 10_077})
"""err_codes of missing memory, disk or quota. 10077 is any failure of the store, a full disk among them."""
_MAKE_ROOM: Final = (
    "free disk space, then restart the node (or your own nats-server), which takes at most 3/4 of the disk that is free at "
    "its start; your own broker may have a smaller max_file_store, or the stream a smaller max_bytes"
)
_TOO_MANY, _UNAVAILABLE = (
    429,
    503,
)  # too many: as many batches are open as the server allows, those of all nodes together

_WRONG_SEQUENCE: Final = frozenset({10_071, 10_164})
"""err_codes of a message that expects another last sequence of its subject; the first one names the present one."""
_SEQUENCE: Final = re.compile(r"sequence: (\d+)")

_START: Final = b'{"stream":"JOURNAL","seq":'
_DIGITS: Final = len(_START)


class WrongLastSequence(BrokerError):
    """The subject has another last message than the publish expects; nothing was stored.

    Args:
        last_seq: The last one, None if the broker does not name it.
    """

    def __init__(self, message: str, last_seq: int | None) -> None:
        super().__init__(message, hint="read the document again")
        self.last_seq = last_seq


class AckVerdict(Enum):
    """What to do about an answer."""

    ACKED = "acked"
    TRY_AGAIN = "try again"
    TRY_SINGLES = "try singles"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AckAnswer:
    """A read answer.

    Attributes:
        verdict: What to do.
        published: The ack, where there is one.
        count: Messages of the atomic batch the ack is for, 0 for a single.
        error: What to raise when giving up; None with an ack.
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
            return None  # more fields: duplicate, domain, batch
    return None


def read_answer(data: bytes) -> AckAnswer:
    """Any answer to a publish; an empty one means that no stream took it."""
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
"""Messages of one batch that a server takes by default (measured: 1,000 pass, 1,001 do not)."""
PLACES: Final = 32
"""Batches of this writer in flight: the server keeps 50 of a stream open, those of other nodes and processes among them."""
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
EXPECTED_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
BATCH_HEAD: Final = 128
"""Bytes that the headers of a batch add to a message, at most."""
_END: Final = len(b"\r\n")
"""Bytes of the blank line that ends a header block."""
_ID_BYTES: Final = 12
"""Random bytes of a batch id; the server takes at most 64 characters (measured)."""


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


def expecting(message: EncodedMessage, last_seq: int) -> EncodedMessage:
    """``message`` for a broker that stores it only if ``last_seq`` is the last message of its subject."""
    line = f"{EXPECTED_LAST}: {last_seq}\r\n\r\n"
    return EncodedMessage(message.subject, message.head[:-_END] + line.encode(), message.body)


def refuse_oversized(messages: Sequence[EncodedMessage], limit: int) -> None:
    """Refuse messages above the broker's limit, for which it would close the connection.

    Raises:
        EntryTooLarge: If a message is.
    """
    for message in messages:
        if len(message.body) + len(message.head) + BATCH_HEAD > limit:
            raise EntryTooLarge(
                f"a message for {message.subject} has {len(message.body):,} bytes, the broker takes {limit:,}",
                hint="raise max_payload of the broker to 1 MiB",
            )


def batch_commands(messages: Sequence[EncodedMessage], reply: str) -> Iterator[bytes]:
    """The protocol commands of one try to publish a batch, under an id of its own.

    Args:
        messages: 2 to ``MAX_ATOMIC``.
        reply: Where the answers to the first message and to the commit go.
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

    None if the messages must be published singly: an id is already known, the server does not take a batch of this size, or
    it does not support batches and stored the messages one by one.
    """
    if answer.published is None or answer.count != count:
        return None
    first = answer.published.seq - count + 1
    return [Published(first + n, duplicate=False) for n in range(count)]
