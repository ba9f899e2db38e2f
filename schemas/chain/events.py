"""The payload of a seal (leaves since the last one, signed checkpoint over all), and the record of an import."""

from __future__ import annotations

import base64
from typing import Final

from pydantic import Field, model_validator

from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind
from .tree import HASH_BYTES, Tree

SEALED_AT_MOST: Final = 1_000
"""Leaves of one seal: 43 kB of base64."""


class JournalImported(ControlPayload):
    """Messages of another journal were imported with their proofs; each names its sequence there in a header.

    Attributes:
        public_key: The key that signed them.
        checkpoint: The signed note of the last checkpoint that covers them.
        size: Number of sequences that it covers.
        messages: Number of messages that were stored.
    """

    ENTRY_TYPE = "journal.imported"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    public_key: str = Field(max_length=200)
    checkpoint: str = Field(max_length=2_000)
    size: int = Field(ge=0)
    messages: int = Field(ge=0)


class ChainSealed(ControlPayload):
    """The messages up to ``last_seq`` are sealed.

    The seal keeps the leaf hashes themselves. So the tree stays whole when a message is erased with its salt, and a check
    names the message that was changed.

    Attributes:
        first_seq: First sequence with a leaf in this seal; the one after the last seal.
        last_seq: Last sequence with a leaf in this seal; the size of the tree.
        leaves: Their leaves in order, 32 bytes each, as base64.
        peaks: Roots of the full subtrees of the whole tree, as hex, the largest first.
        salted: Whether a message with a salt is among all that are sealed.
        checkpoint: Signed note with size and root of the tree.
    """

    ENTRY_TYPE = "chain.sealed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    SCANNED = False
    first_seq: int = Field(ge=1)
    last_seq: int = Field(ge=1)
    leaves: str = Field(max_length=SEALED_AT_MOST * HASH_BYTES * 2)
    peaks: tuple[str, ...] = Field(max_length=64)
    salted: bool
    checkpoint: str = Field(max_length=2_000)

    @model_validator(mode="after")
    def _has_a_leaf_for_each(self) -> ChainSealed:
        if len(self._data()) != HASH_BYTES * (self.last_seq - self.first_seq + 1):
            raise ValueError("leaves must hold 32 bytes for each sequence")
        if len(self.peaks) != self.last_seq.bit_count():
            raise ValueError("peaks must hold one root for each full subtree")
        return self

    def sealed_leaves(self) -> list[bytes]:
        """The leaves in order."""
        data = self._data()
        return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]

    def _data(self) -> bytes:
        return base64.b64decode(self.leaves, validate=True)

    def tree(self) -> Tree:
        """The tree up to ``last_seq``, to append to."""
        return Tree(self.last_seq, map(bytes.fromhex, self.peaks))
