"""How far an import has come, so that it goes on where it stopped.

Invariant: the offset says that every line before it was acked, and only moves forward in order. It belongs to one
file: another path, another beginning or another text just before the offset means another import, which starts at the
beginning (and still counts no line twice, because a line has the same id again).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

HEAD_BYTES: Final = 64 * 1024
"""Bytes of a file's beginning, hashed to recognise it."""
TAIL_BYTES: Final = 4 * 1024
"""Bytes before the offset, hashed to see that the file was appended to and not rewritten."""
SAVE_EVERY_S: Final = 0.5
"""Seconds between two saves; what is sent again after a crash is counted once anyway."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """What is known of an import.

    Attributes:
        path: Absolute path of the file.
        head_bytes: How much of the beginning is hashed.
        head: SHA-256 of it.
        tail: SHA-256 of the bytes before ``offset``.
        offset: Bytes whose lines are all acked.
        line: Number of the last of these lines.
        last_seq: Highest sequence acked, 0 if nothing was.
        last_id: Id of the entry that has it.
        last_workspace: The workspace which that entry's line named, None if it named none.
    """

    path: str
    head_bytes: int
    head: str
    tail: str = ""
    offset: int = 0
    line: int = 0
    last_seq: int = 0
    last_id: str = ""
    last_workspace: str | None = None


class StateFile:
    """The progress file of one import.

    Args:
        directory: Where progress files are; made when the first is written.
        source: The file that is imported.
        into: What it is imported into; kept as a hash.
    """

    def __init__(self, directory: Path, source: Path, into: str) -> None:
        self._source = source.resolve()
        key = hashlib.sha256(f"{self._source}\x00{into}".encode(errors="surrogateescape")).hexdigest()[:32]
        self._file = directory / f"{key}.json"
        self._saved_at = 0.0

    def load(self, file: BinaryIO) -> ImportState:
        """The state to go on from: the saved one if the file is still the same one, else a fresh one."""
        size = os.fstat(file.fileno()).st_size
        try:
            kept = ImportState(**json.loads(self._file.read_bytes()))
            if self._is_of(kept, file, size):
                return kept
        except (OSError, ValueError, TypeError):
            pass  # missing, torn or of another version
        return self.fresh(file)

    def fresh(self, file: BinaryIO) -> ImportState:
        """The state before the first line."""
        head_bytes = min(os.fstat(file.fileno()).st_size, HEAD_BYTES)
        return ImportState(str(self._source), head_bytes, _hash(file, 0, head_bytes))

    def save(self, state: ImportState, file: BinaryIO, *, now: bool = False) -> None:
        """Keep ``state``; unless ``now``, at most every ``SAVE_EVERY_S`` seconds."""
        clock = time.monotonic()
        if not now and clock - self._saved_at < SAVE_EVERY_S:
            return
        self._saved_at = clock
        start = max(0, state.offset - TAIL_BYTES)
        whole = replace(state, tail=_hash(file, start, state.offset - start))
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(asdict(whole)))
            draft.chmod(0o600)
            draft.replace(self._file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()

    def _is_of(self, kept: ImportState, file: BinaryIO, size: int) -> bool:
        start = max(0, kept.offset - TAIL_BYTES)
        return (
            kept.path == str(self._source)
            and kept.offset <= size
            and kept.head_bytes <= size
            and _hash(file, 0, kept.head_bytes) == kept.head
            and _hash(file, start, kept.offset - start) == kept.tail
        )


def _hash(file: BinaryIO, start: int, count: int) -> str:
    """SHA-256 of ``count`` bytes at ``start``; leaves the position of ``file`` alone."""
    return hashlib.sha256(os.pread(file.fileno(), count, start)).hexdigest()
