"""What a mirror remembers of its directory, so that a restart repeats nothing and loses nothing.

Invariant: a write is noted here before it is sent, and a file that is taken away before it is; the file of the state is
replaced as a whole.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ....schemas.errors import CrewJournalError, DataDirBusy
from ....schemas.ids import uuid7_hex
from ..foreign_files import file_at
from .changes import Base, UnkeptText

STATE_FILE: Final = ".crew-journal-mirror.json"
LOCK_FILE: Final = ".crew-journal-mirror.lock"
FORMAT: Final = 1
MAX_STATE_BYTES: Final = 64 << 20
"""Bytes of the state; 10,000 files take 3 MB."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A write that may have been sent.

    Attributes:
        write_id: Its id.
        mode: ``append``, ``replace``, or ``conflict``: replace, then restore what there was.
        text: The whole text of the file that it is made of.
        expected: The version that a replace is for.
        beside: Of a conflict, the file beside that holds the text.
    """

    write_id: str
    mode: str
    text: UnkeptText
    expected: int
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """A file: the version that it was in step with, and a write that may be under way."""

    base: Base
    sending: Sending | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """A file that was taken away while a writer may have had it open: the label, and the text that is accounted for."""

    label: str
    text: UnkeptText


@dataclass(slots=True)
class MirrorState:
    """The state of one directory.

    Attributes:
        path: Its file.
        of: Whose documents these are: workspace, agent and crew.
        mirror: Id of this directory; part of its write ids, so that equal lines of two directories count twice.
        files: ``agent/AGENT.md`` → what is known of it.
        passed: The sequence that the views had reached at the last completed pass; None before the first one. A document
            that was first written after it, and is not among ``files``, was never in the directory.
        former: ``agent/.crew-journal-old-7-AGENT.md`` → the text that was moved there.
    """

    path: Path
    of: str
    mirror: str = field(default_factory=uuid7_hex)
    files: dict[str, Known] = field(default_factory=dict)
    former: dict[str, Former] = field(default_factory=dict)
    passed: int | None = None

    @classmethod
    def load(cls, folder: Path, of: str) -> MirrorState:
        """The state of a directory, or that of a new one.

        Raises:
            CrewJournalError: If the directory is of another agent, or the file is not a state.
        """
        path = folder / STATE_FILE
        try:
            kept = json.loads(file_at(path, follow=False).read(MAX_STATE_BYTES)) if os.path.lexists(path) else None
            if kept is None:
                return cls(path, of)
            state = cls(path, kept["of"], kept["mirror"], passed=kept["passed"])
            state.files = {name: _known(known_file) for name, known_file in kept["files"].items()}
            state.former = {
                name: Former(known_file["label"], UnkeptText(**known_file["text"]))
                for name, known_file in kept["former"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CrewJournalError(
                f"{path} cannot be read", hint="remove it: the files are then compared with the versions in the journal"
            ) from None
        if state.of != of:
            raise CrewJournalError(
                f"{folder} is the mirror of {state.of}, not of {of}", hint="use a directory for each agent"
            )
        return state

    def put(self, name: str, known: Known | None) -> None:
        """Note what is known of a file, durably; None to forget it."""
        if known is None:
            if self.files.pop(name, None) is None:
                return
        else:
            self.files[name] = known
        self.save()

    def save(self) -> None:
        """Write the state's file."""
        kept = {
            "format": FORMAT,
            "of": self.of,
            "mirror": self.mirror,
            "passed": self.passed,
            "files": {name: asdict(known_file) for name, known_file in self.files.items()},
            "former": {name: asdict(known_file) for name, known_file in self.former.items()},
        }
        draft = self.path.with_name(self.path.name + ".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(kept, indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)


def _known(kept: dict[str, Any]) -> Known:
    base, sending = kept["base"], kept["sending"]
    if sending is not None:
        sending = Sending(**{**sending, "text": UnkeptText(**sending["text"])})
    return Known(Base(base["seq"], UnkeptText(**base["text"])), sending)


def lock(folder: Path) -> int:
    """Take the lock of a directory; it is held until the process ends.

    Raises:
        DataDirBusy: If another mirror runs on it.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DataDirBusy(
            f"another mirror runs on {folder}",
            hint="stop it, or use another directory; of a crew's directory there is one mirror, that of its lead",
        ) from None
    return descriptor
