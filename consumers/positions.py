"""Where a delivered message stands: read off the reply subject that JetStream gives it, with one split.

Invariant: the stream sequence and the broker's time of a message are JetStream's, never the body's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from crew_journal.consumers.messages import RawMessage

_NS_PER_MS: Final = 1_000_000
_PLAIN_TOKENS: Final = 9
"""``$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>``; with a domain two more come first."""
_DOMAIN_SHIFT: Final = 2


class Position(NamedTuple):
    """The place of a delivered message.

    Attributes:
        seq: Stream sequence.
        delivery: The consumer's own count of deliveries: without gaps, so a gap means that messages were lost.
        published_ms: The broker's time, milliseconds since the epoch.
        pending: Messages of the stream that the consumer has not delivered yet.
    """

    seq: int
    delivery: int
    published_ms: int
    pending: int


def position_of(reply: str) -> Position:
    """The position in a reply subject.

    Raises:
        ValueError: If it is no reply subject of JetStream.
    """
    tokens = reply.split(".")
    at = 5 if len(tokens) == _PLAIN_TOKENS else 5 + _DOMAIN_SHIFT
    if len(tokens) < _PLAIN_TOKENS or tokens[1] != "ACK":
        raise ValueError("not a message of a JetStream consumer")
    return Position(int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]) // _NS_PER_MS, int(tokens[at + 3]))


def raw_message(position: Position, subject: str, headers: Mapping[str, str] | None, data: bytes) -> RawMessage:
    """A delivered message as folds and reactors take it.

    nats-py hands out values that are not ASCII, which only a stranger can have sent, as objects of ``email``: they are
    made text here, so that no fold stumbles over them.
    """
    if headers:
        for value in headers.values():
            if type(value) is not str:
                headers = {name: str(value) for name, value in headers.items()}
                break
    return RawMessage(position.seq, subject, headers or None, data, position.published_ms)


def read_headers(block: bytes) -> dict[str, str]:
    """The headers of a raw header block (``NATS/1.0`` and one ``name: value`` a line), at a tenth of nats-py's cost."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:-2]
    try:
        return dict([line.split(": ", 1) for line in lines])  # ValueError unless two parts each
    except ValueError:  # no blank after the colon, as others may write it, or no colon
        parts = (line.partition(":") for line in lines)
        return {name.strip(): value.strip() for name, colon, value in parts if colon and name.strip()}


def status_of(block: bytes) -> str:
    """The status code in the first line of a raw header block, empty if there is none."""
    return block.split(b"\r\n", 1)[0][len(b"NATS/1.0") :].strip()[:3].decode("ascii", "replace")
