"""Atomic batches of JetStream ≥ 2.12: all messages are stored, or none.

They are also the only group commit under ``sync_interval: always``: one batch, one fsync (facts/nats.md).
Protocol (ADR-50 of NATS): each message bears the batch's id and its own number, the last one the commit mark; the
commit's ack holds the last sequence and the count, and the batch lies contiguously before it. The first message asks for an
answer, too: an empty one if the batch is open, else why it is not, which the commit's "incomplete" does not say.

Invariant: a batch has sequences only where the broker acked the commit of exactly these messages. An outcome that is not
known (a lost ack) is tried again with the same message ids under another batch id; if the first try was stored, the broker
refuses the second for its duplicates, and the acks of single publishes then give every sequence.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ....schemas.errors import EntryTooLarge
from ....schemas.events.derived import OutgoingMessage
from ....schemas.ports import Published
from ..broker.connection import encode_headers, encode_publish
from .acks import AckAnswer

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
