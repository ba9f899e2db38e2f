"""How far an import has come, so that it goes on where it stopped.

Invariant: the offset says that every line before it was acked, and only moves forward in order. It belongs to one
file: another path, another beginning or another text just before the offset means another import, which starts at the
beginning (and still counts no line twice, because a line has the same id again).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

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
        offset: Bytes whose lines are all acked.
        line: Number of the last of these lines.
        last_seq: Highest sequence acked, 0 if nothing was.
        last_id: Id of the entry that has it.
        last_workspace: The workspace which that entry's line named, None if it named none.
    """

    path: str
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
        try:
            kept = json.loads(self._file.read_bytes())
            known = kept.pop("marks")
            state = ImportState(**kept)
            if known == _marks(file, state.offset, known[0]):
                return state
        except (OSError, ValueError, TypeError, AttributeError, LookupError):
            pass  # missing, torn or of another version
        return self.fresh()

    def fresh(self) -> ImportState:
        """The state before the first line."""
        return ImportState(str(self._source))

    def save(self, state: ImportState, file: BinaryIO, *, now: bool = False) -> None:
        """Keep ``state``; unless ``now``, at most every ``SAVE_EVERY_S`` seconds."""
        clock = time.monotonic()
        if not now and clock - self._saved_at < SAVE_EVERY_S:
            return
        self._saved_at = clock
        head_bytes = min(os.fstat(file.fileno()).st_size, HEAD_BYTES)
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(state) | {"marks": _marks(file, state.offset, head_bytes)}))
        draft.chmod(0o600)
        draft.replace(self._file)


def _marks(file: BinaryIO, offset: int, head_bytes: int) -> list[Any]:
    """Hashes by which a file is recognised: of its beginning, and of the bytes before ``offset``.

    A file that has become shorter has other hashes. The position of ``file`` stays.
    """
    start = max(0, offset - TAIL_BYTES)
    parts = os.pread(file.fileno(), head_bytes, 0), os.pread(file.fileno(), offset - start, start)
    return [head_bytes, *(f"{len(part)} {hashlib.sha256(part).hexdigest()}" for part in parts)]
