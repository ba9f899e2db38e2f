"""The journal's signing key, and its anchors: places outside the stream that keep every signed checkpoint.

Invariant: an anchor is only appended to, and a checkpoint is written to every anchor after it is in the journal.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

import structlog

from ...schemas.chain.check import Anchor

ANCHOR_FILE: Final = "checkpoints.txt"
"""Name of the anchor that every node keeps in its data directory."""
_KEY_PURPOSE: Final = b"crew-journal checkpoint key"
_NOTE_LINES: Final = 5
"""Lines of a note with one signature: origin, size, root, a blank line, the signature."""
_log = structlog.get_logger(__name__)


def signing_key(subject_key: bytes) -> bytes:
    """The private Ed25519 key (32 bytes) with which checkpoints are signed.

    It is derived from the key that every journal has and every backup holds, so a restored journal keeps its signer.
    """
    return hmac.digest(subject_key, _KEY_PURPOSE, "sha256")


class AnchorPlace(Protocol):
    """A place outside the stream: a file here; a bucket or a witness can be another."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def write(self, note: str) -> None:
        """Add a signed checkpoint; blocking. Raises ``OSError`` if it cannot."""
        ...

    def read(self) -> Anchor:
        """All checkpoints it holds; blocking. Raises ``OSError`` if it cannot be read."""
        ...


class AnchorFile:
    """A file to which checkpoints are appended, durably; its folder must exist.

    Args:
        path: The file.
        name: What reports call it; the path if absent.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self._path = path
        self.name = name or str(path)

    def write(self, note: str) -> None:
        """Append a signed checkpoint."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(note)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Anchor:
        """The checkpoints in the file; a last one that was not written whole is left out."""
        try:
            lines = self._path.read_text("utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return Anchor(self.name, ())
        whole = len(lines) - len(lines) % _NOTE_LINES
        return Anchor(self.name, tuple(_notes(lines[:whole])))


def _notes(lines: list[str]) -> Iterator[str]:
    for at in range(0, len(lines), _NOTE_LINES):
        yield "".join(lines[at : at + _NOTE_LINES])


def anchor_places(data_dir: Path, further: Iterable[Path]) -> tuple[AnchorPlace, ...]:
    """The anchors of a node: its own, and the configured files."""
    return (AnchorFile(data_dir / ANCHOR_FILE, ANCHOR_FILE), *map(AnchorFile, further))


def write_all(places: Iterable[AnchorPlace], note: str) -> dict[str, str]:
    """Write a checkpoint to every anchor; returns name → problem of those that failed. Blocking."""
    failed = {}
    for place in places:
        try:
            place.write(note)
        except OSError as error:
            failed[place.name] = error.strerror or type(error).__name__
            _log.warning("anchor_not_written", anchor=place.name, problem=failed[place.name])
    return failed
