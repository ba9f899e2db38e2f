"""Leaves and Merkle tree of the stream (RFC 6962, RFC 9162).

The leaf with index ``i`` belongs to the sequence ``i + 1`` of JOURNAL, so every sequence has one, also a missing one.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from ..core import headers as h

HASH_BYTES: Final = 32
GAP: Final = sha256(b"\x00crew-journal: no message").digest()
"""Leaf of a sequence that had no message when it was sealed."""
UNSALTED: Final = sha256(b"\x00crew-journal: before the log").digest()
"""Leaf of the messages before the first one with a salt.

A hash of their content would stay after an erasure and could confirm a guess.
"""
EMPTY_ROOT: Final = sha256(b"").digest()
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_SALT_LINE: Final = f"\r\n{h.SALT}: ".encode()
_BLOCK_END: Final = len(b"\r\n\r\n")
_HEX_END: Final = 32 + _BLOCK_END
_SALT_END: Final = len(_SALT_LINE) + _HEX_END
"""Bytes from the end of a block that ends with the salt's line."""
_SALT: Final = re.compile(rf"\r\n{h.SALT}: ([0-9a-fA-F]{{32}})\r\n".encode())


def header_block(headers: Mapping[str, str] | None) -> bytes:
    """The headers as the block of bytes that the service publishes: ``NATS/1.0`` and one ``name: value`` a line."""
    block = getattr(headers, "block", None)
    if block is not None:
        return bytes(block)
    lines = "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()])
    return b"%s%s\r\n" % (_FIRST_LINE, lines.encode())


def leaf_data(subject: str, headers: Mapping[str, str] | None, body: bytes) -> bytes | None:
    """What the leaf of a message is a hash of: salt, subject, headers, body; None for a message without a salt.

    The parts need no lengths between them: the salt has 16 bytes, the headers begin with ``NATS/1.0`` and a line break,
    which no subject holds, and end with the first empty line.
    """
    block = header_block(headers)
    salt = _salt_of(block)
    return None if salt is None else b"".join((salt, subject.encode(), block, body))


def _salt_of(block: bytes) -> bytes | None:
    """The salt in a header block, 16 bytes; the service writes its line last, so it is looked for there first."""
    if block[-_SALT_END:-_HEX_END] == _SALT_LINE:
        try:
            return unhexlify(block[-_HEX_END:-_BLOCK_END])
        except ValueError:
            pass  # not a salt: it may have come earlier
    found = _SALT.search(block)
    return None if found is None else unhexlify(found[1])


def leaf_hash(data: bytes) -> bytes:
    """The leaf of these bytes, 32 bytes."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The inner node over two nodes, 32 bytes."""
    return sha256(b"\x01" + left + right).digest()


class Leaves:
    """The leaves of messages in stream order.

    Args:
        salted: Whether a message with a salt came before.
    """

    def __init__(self, *, salted: bool = False) -> None:
        self.salted = salted

    def leaf(self, subject: str, headers: Mapping[str, str] | None, body: bytes) -> bytes:
        """The leaf of the next message, 32 bytes."""
        block = header_block(headers)
        salt = _salt_of(block)
        if salt is not None:
            self.salted = True
            return sha256(b"\x00%b%b%b%b" % (salt, subject.encode(), block, body)).digest()  # as ``leaf_hash``
        if not self.salted:
            return UNSALTED
        return leaf_hash(b"".join((subject.encode(), block, body)))  # published by somebody else


class Tree:
    """The right edge of a growing tree: enough to append leaves and to compute the root.

    Args:
        size: Number of leaves.
        peaks: Roots of the full subtrees, the largest first: one for each binary digit 1 of ``size``.

    Raises:
        ValueError: If the number of peaks does not fit the size.
    """

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if len(self.peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} full subtrees, not {len(self.peaks)}")

    def add(self, leaf: bytes) -> None:
        """Append a leaf."""
        size, peaks = self.size, self.peaks
        while size & 1:
            leaf = node_hash(peaks.pop(), leaf)
            size >>= 1
        peaks.append(leaf)
        self.size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaves, level by level: half the cost of ``add`` for each of many."""
        row, size, peaks = list(leaves), self.size, list[bytes]()
        self.size += len(row)
        while row:
            if size & 1:
                row.insert(0, self.peaks.pop())
            if len(row) & 1:
                peaks.append(row.pop())
            row = [sha256(b"\x01" + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=True)]
            size >>= 1
        self.peaks += reversed(peaks)

    def root(self) -> bytes:
        """The root over all leaves, 32 bytes."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root of a tree with these leaves."""
    tree = Tree()
    tree.extend(leaves)
    return tree.root()


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes from which a verifier computes the root of the leaf at ``index``, the nearest first (RFC 9162 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    if index < middle:
        return [*inclusion_path(leaves[:middle], index), root_of(leaves[middle:])]
    return [*inclusion_path(leaves[middle:], index - middle), root_of(leaves[:middle])]
