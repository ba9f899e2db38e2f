"""The journal's signing key, and its anchors: places outside the stream that keep every signed checkpoint.

Invariant: an anchor is only appended to, and a checkpoint is written to every anchor after it is in the journal.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

import structlog

from ...schemas.chain.check import Anchor
from ...schemas.chain.checkpoint import ORIGIN
from ...schemas.core.errors import Unavailable

ANCHOR_FILE: Final = "checkpoints.txt"
"""Name of the anchor that every node keeps in its data directory."""
_KEY_PURPOSE: Final = b"crew-journal checkpoint key"
_NOTE_LINES: Final = 5
"""Lines of a note with one signature: origin, size, root, a blank line, the signature."""
_SIGNATURE_CHARS: Final = len(f"\N{EM DASH} {ORIGIN} \n") + 92
"""Characters of its last line: key id and signature have 68 bytes, 92 characters of base64."""
_NOTE_BEGIN: Final = re.compile(rf"^(?={re.escape(ORIGIN)}$)", re.MULTILINE)
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
        """All checkpoints it holds; blocking. Raises ``Unavailable`` if it cannot be read."""
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
        """Append a signed checkpoint, on a line of its own: a full disk may have cut the last one."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                file.write(b"\n")
            file.write(note.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Anchor:
        """The checkpoints in the file; those that were not written whole are left out.

        Raises:
            Unavailable: If the file cannot be read.
        """
        try:
            text = self._path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return Anchor(self.name, ())
        except OSError as error:
            raise Unavailable(
                f"the anchor {self.name} cannot be read: {error.strerror or type(error).__name__}",
                hint="make it readable, or leave it out of CREW_JOURNAL_ANCHORS",
            ) from error
        return Anchor(self.name, tuple(_notes(text)))


def _notes(text: str) -> Iterator[str]:
    """The notes of a text that have all their lines."""
    for part in re.split(_NOTE_BEGIN, text):
        lines = part.splitlines(keepends=True)[:_NOTE_LINES]
        if len(lines) == _NOTE_LINES and lines[0] == f"{ORIGIN}\n" and len(lines[-1]) >= _SIGNATURE_CHARS:
            yield "".join(lines)


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
