"""Reads JetStream's answers to a publish: an ack, a temporary refusal, or a permanent refusal.

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
