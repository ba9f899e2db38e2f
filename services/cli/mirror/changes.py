"""What a change of a file means: lines were appended, or the text was replaced.

Invariant: pure; the same base and the same text always give the same write with the same id, so that a write that is sent
again after a crash counts once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

ID_DIGITS: Final = 40
"""Hex digits of a write id behind its prefix."""


def sha256(data: bytes) -> str:
    """The SHA-256 of a text, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class UnkeptText:
    """A text that is not kept: its size in bytes and its SHA-256."""

    size: int = 0
    sha256: str = sha256(b"")

    @classmethod
    def of(cls, data: bytes) -> UnkeptText:
        """The size and hash of ``data``."""
        return cls(len(data), sha256(data))

    def begins(self, data: bytes) -> bool:
        """Whether ``data`` begins with this text."""
        return len(data) >= self.size and sha256(data[: self.size]) == self.sha256


@dataclass(frozen=True, slots=True)
class Base:
    """The version of a document that a file was last in step with; sequence 0 for none."""

    seq: int = 0
    text: UnkeptText = UnkeptText()


@dataclass(frozen=True, slots=True)
class Change:
    """A write: ``append`` with what is added, or ``replace`` with the whole text.

    ``whole_lines``: it adds complete lines, so it need not wait until the writer has finished.
    """

    mode: Literal["append", "replace"]
    content: bytes
    whole_lines: bool = False


class ListedVersion(Protocol):
    """A version of a document as the service lists it."""

    @property
    def seq(self) -> int:
        """Its sequence."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of its text."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of its text."""
        ...


def change_of(base: UnkeptText, data: bytes) -> Change:
    """The write that makes ``data`` of ``base``.

    It is an append if ``data`` begins with ``base`` and the rest can stand on lines of its own, as appends do.
    """
    if not base.begins(data):
        return Change("replace", data)
    rest = data[base.size :]
    if base.size and not data[: base.size].endswith(b"\n"):
        if not rest.startswith(b"\n"):
            return Change("replace", data)
        rest = rest[1:]
    if not rest.strip():
        return Change("replace", data)
    return Change("append", rest, whole_lines=rest.endswith(b"\n"))


def base_among(versions: Iterable[ListedVersion], data: bytes, after: int) -> Base | None:
    """The longest version later than ``after`` that ``data`` begins with; None if no version that has a text fits."""
    base: Base | None = None
    candidates = [version for version in versions if version.seq > after and 0 < version.bytes <= len(data)]
    hashes = _prefix_hashes(data, {candidate.bytes for candidate in candidates})
    for candidate in candidates:
        if hashes[candidate.bytes] == candidate.sha256 and (
            base is None or (candidate.bytes, candidate.seq) > (base.text.size, base.seq)
        ):
            base = Base(candidate.seq, UnkeptText(candidate.bytes, candidate.sha256))
    return base


def _prefix_hashes(data: bytes, sizes: Iterable[int]) -> dict[int, str]:
    """Size → hash of so many first bytes, in one pass."""
    made, hashed, at = {}, hashlib.sha256(), 0
    for size in sorted(sizes):
        hashed.update(data[at:size])
        made[size], at = hashed.hexdigest(), size
    return made


def write_id(*parts: object) -> str:
    """A write id that follows from ``parts``."""
    return "m_" + sha256("\0".join(map(str, parts)).encode())[:ID_DIGITS]
