"""The undecoded message of JOURNAL that live feed and bulk replay deliver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...schemas.core import headers as h


@dataclass(
    slots=True
)  # not frozen, because freezing costs 2 µs a message, a tenth of reading it; no code modifies a message
class RawMessage:
    """One stored message.

    Attributes:
        seq: Stream sequence in JOURNAL.
        subject: Subject of the message.
        headers: Headers, None if the message has no headers.
        data: Body.
        published_ms: The broker's time of the message, milliseconds since the epoch.
    """

    seq: int
    subject: str
    headers: Mapping[str, str] | None
    data: bytes
    published_ms: int


def in_parts(messages: Sequence[RawMessage], part_bytes: int) -> Iterator[Sequence[RawMessage]]:
    """The messages in order, in parts of at most ``part_bytes`` bytes of bodies; a larger message forms its own part."""
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


# Reads the stream position of a delivered message from its JetStream reply subject.


_NS_PER_MS: Final = 1_000_000
_PLAIN_TOKENS: Final = 9
"""``$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>``; with a domain, two more parts
follow ``$JS.ACK``.
"""
_DOMAIN_SHIFT: Final = 2
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_PLAIN_BLOCK: Final = re.compile(rb"NATS/1\.0\r\n(?:[!-9;-~]++: [!-~]++(?: ++[!-~]++)*+\r\n)++\r\n")
"""Matches printable ASCII without blanks at the ends, the form in which the service writes values."""
_OTHER_LINES: Final = rf"(?:(?!{h.CONTENT_HASH}:)[!-9;-~]++: [!-~]++(?: ++[!-~]++)*+\r\n)*+"
_ENTRY_BLOCK: Final = re.compile(
    rf"NATS/1\.0\r\n{_OTHER_LINES}{h.CONTENT_HASH}: ([!-~]++)\r\n{_OTHER_LINES}\r\n".encode()
)
"""Matches a header block in the service's form that contains the content hash once."""
_PUBLISHERS: Final = re.compile(rf"\r\n{h.PUBLISHER}: ([^\r\n]*)".encode())
"""Matches the header's values in a block of this form."""
_VOUCHED: Final = h.ACTOR_VOUCHED.encode()


class Position(NamedTuple):
    """The place of a delivered message.

    Attributes:
        seq: Stream sequence.
        delivery: The consumer's delivery count. It has no gaps, so a gap means that messages were lost.
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
        ValueError: If the text is not a reply subject of JetStream.
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
    """Build the message that folds and reactors read.

    nats-py returns non-ASCII header values, which the service never sends, as ``email`` objects; they are converted to
    text here, so that folds can read them.
    """
    if headers:
        for value in headers.values():
            if type(value) is not str:
                headers = {name: str(value) for name, value in headers.items()}
                break
    return RawMessage(position.seq, subject, headers or None, data, position.published_ms)


def read_headers(block: bytes) -> dict[str, str]:
    """The headers of a raw header block (``NATS/1.0`` and one ``name: value`` a line), as nats-py would read them.

    Live feed and bulk replay must agree on every block that any publisher can send, or their folds differ. Therefore
    blocks that are not in the service's own form are parsed by nats-py's rules (blanks around name and value are
    dropped; names are ASCII without blanks).
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
    """The headers of an entry, parsed on the first access to a header other than content hash or publisher.

    Folds rarely read other headers, and a dict of all headers costs 5 µs a message.
    """

    __slots__ = ("_block", "_content", "_read")

    def __init__(self, block: bytes, content: bytes) -> None:
        """Wrap a block of the service's form with one content hash, which ``headers_of`` has found."""
        self._block = block
        self._content = content
        self._read: dict[str, str] | None = None

    @property
    def block(self) -> bytes:
        """The block as it is stored."""
        return self._block

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
    """The parsed headers of a block; parsing is deferred for entries in the service's form. None without a block."""
    if not block:
        return None
    plain = _ENTRY_BLOCK.fullmatch(block)
    return EntryHeaders(block, plain[1]) if plain else read_headers(block) or None


def status_of(block: bytes) -> str:
    """The status code in the first line of a raw header block, empty if absent."""
    return block.split(b"\r\n", 1)[0][len(b"NATS/1.0") :].strip()[:3].decode("ascii", "replace")
