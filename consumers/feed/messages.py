"""A message of JOURNAL before it is decoded, as live feed and bulk replay both deliver it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...schemas.core import headers as h


@dataclass(slots=True)  # not frozen: that costs 2 µs a message, a tenth of reading one; no code changes it
class RawMessage:
    """One stored message.

    Attributes:
        seq: Stream sequence in JOURNAL.
        subject: Its subject.
        headers: Its headers, None if it has none.
        data: Its body.
        published_ms: The broker's time of it, milliseconds since the epoch.
    """

    seq: int
    subject: str
    headers: Mapping[str, str] | None
    data: bytes
    published_ms: int


def in_parts(messages: Sequence[RawMessage], part_bytes: int) -> Iterator[Sequence[RawMessage]]:
    """The messages in order, in parts of at most ``part_bytes`` bytes of bodies; a larger message is a part of its own."""
    if sum(len(message.data) for message in messages) <= part_bytes:
        yield messages
        return
    first = size = 0
    for at, message in enumerate(messages):
        size += len(message.data)
        if size > part_bytes and at > first:
            yield messages[first:at]
            first, size = at, len(message.data)
    yield messages[first:]


# The stream position of a delivered message, read from the reply subject that JetStream gives it.


_NS_PER_MS: Final = 1_000_000
_PLAIN_TOKENS: Final = 9
"""``$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>``; with a domain two more come first."""
_DOMAIN_SHIFT: Final = 2
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_PLAIN_BLOCK: Final = re.compile(rb"NATS/1\.0\r\n(?:[!-9;-~]++: [!-~]++(?: ++[!-~]++)*+\r\n)++\r\n")
"""Printable ASCII without blanks at the ends: what we write ourselves."""
_OTHER_LINES: Final = rf"(?:(?!{h.CONTENT_HASH}:)[!-9;-~]++: [!-~]++(?: ++[!-~]++)*+\r\n)*+"
_ENTRY_BLOCK: Final = re.compile(
    rf"NATS/1\.0\r\n{_OTHER_LINES}{h.CONTENT_HASH}: ([!-~]++)\r\n{_OTHER_LINES}\r\n".encode()
)
"""A plain block that names the content hash once."""
_PUBLISHERS: Final = re.compile(rf"\r\n{h.PUBLISHER}: ([^\r\n]*)".encode())
"""Values of the header in a plain block."""
_VOUCHED: Final = h.ACTOR_VOUCHED.encode()


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
        ValueError: If it is not a reply subject of JetStream.
    """
    return Position(*place_of(reply))


def place_of(reply: str) -> tuple[int, int, int, int]:
    """``position_of`` without the names, for the bulk replay's inner loop."""
    tokens = reply.split(".")
    if len(tokens) == _PLAIN_TOKENS and tokens[1] == "ACK":
        _, _, _, _, _, seq, delivery, published_ns, pending = tokens
        return int(seq), int(delivery), int(published_ns) // _NS_PER_MS, int(pending)
    at = 5 if len(tokens) == _PLAIN_TOKENS else 5 + _DOMAIN_SHIFT
    if len(tokens) < _PLAIN_TOKENS or tokens[1] != "ACK":
        raise ValueError("not a message of a JetStream consumer")
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]) // _NS_PER_MS, int(tokens[at + 3])


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
    """The headers of a raw header block (``NATS/1.0`` and one ``name: value`` a line), as nats-py would read them.

    Live feed and bulk replay must agree on every block that a stranger can send, or their folds differ: what is not
    plainly written as we write it is read by nats-py's rules (blanks around name and value go, names are ASCII without).
    """
    if _PLAIN_BLOCK.fullmatch(block):
        return dict([line.split(": ", 1) for line in block.decode("ascii").split("\r\n")[1:-2]])
    headers: dict[str, str] = {}
    for line in block[len(_FIRST_LINE) :].split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.strip()
        if colon and name.isascii() and not any(map(str.isspace, key := name.decode("ascii"))) and key:
            headers[key] = value.strip().decode("utf-8", "replace")
    return headers


class EntryHeaders(Mapping[str, str]):
    """Headers of an entry as they came, read when more than content hash and publisher are asked for.

    Folds ask for nothing else, apart from the own words of persons, and a dict of all of them costs 5 µs a message.
    """

    __slots__ = ("_block", "_content", "_read")

    def __init__(self, block: bytes, content: bytes) -> None:
        """Headers of a plain block with one content hash, as ``headers_of`` finds it."""
        self._block = block
        self._content = content
        self._read: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._read is None:
            self._read = read_headers(self._block)
        return self._read

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header, ``default`` if it is absent."""
        if name == h.CONTENT_HASH:
            return self._content.decode("ascii")
        if name == h.PUBLISHER:
            values = _PUBLISHERS.findall(self._block)
            return values[-1].decode("ascii") if values else default
        if name == h.ACTOR_VOUCHED and _VOUCHED not in self._block:
            return default
        return self._all().get(name, default)

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def headers_of(block: bytes | None) -> Mapping[str, str] | None:
    """What ``read_headers`` gives, put off where the block is an entry's and plain; None if absent."""
    if not block:
        return None
    plain = _ENTRY_BLOCK.fullmatch(block)
    return EntryHeaders(block, plain[1]) if plain else read_headers(block) or None


def status_of(block: bytes) -> str:
    """The status code in the first line of a raw header block, empty if absent."""
    return block.split(b"\r\n", 1)[0][len(b"NATS/1.0") :].strip()[:3].decode("ascii", "replace")
