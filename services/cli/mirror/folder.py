"""A folder ``.memory`` of one owner: its files are found, read and replaced without following a link.

Invariant: every file is opened below the folder's own descriptor with ``O_NOFOLLOW``. A text is written atomically
(temporary sibling, fsync, rename) and readable only by its owner; the replaced file keeps a second, hidden name, so
that text that a writer adds to it later, or added in between, is found.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from ....schemas.core.errors import CrewJournalError, DataDirBusy
from ....schemas.core.ids import uuid7_hex
from ....schemas.documents.rules import TIERS, Scope, is_mirrored, tier_of_label
from ..foreign_files import file_at

MEMORY_DIR: Final = ".memory"
MAX_FILE_BYTES: Final = 1_048_576
"""Larger files are not read; the largest cap of a tier is 250,000 bytes."""
OWN_PREFIX: Final = ".crew-journal-"
"""Beginning of the names of a mirror's own files."""
_NEW: Final = OWN_PREFIX + "new-"
_OLD: Final = OWN_PREFIX + "old-"
_CONFLICT: Final = re.compile(r".+\.conflict-\d{8}T\d{6}Z(-\d+)?\Z")
_FOLDERS: Final = frozenset(
    rule.label.split("/")[0] for tier, rule in TIERS.items() if "/" in rule.label and is_mirrored(tier)
)
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RACY_NS: Final = 50_000_000
"""A file that was changed less than this time before it was read is read again, because it may change again with the
same time stamp (ticks of up to 10 ms).
"""
_PRIVATE: Final = 0o600
_READ_ONLY: Final = 0o400
_PRIVATE_FOLDER: Final = 0o700


class UnreadableFile(Exception):
    """A file that is not read; the message says why."""


class Signature(NamedTuple):
    """Attributes that show whether a file has changed; a ``racy`` signature equals no other."""

    mtime_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, result: os.stat_result) -> Signature:
        """The signature of a file."""
        return cls(result.st_mtime_ns, result.st_size, result.st_ino)

    @property
    def is_racy(self) -> bool:
        """Whether the file was changed so recently that another change may look the same."""
        return time.time_ns() - self.mtime_ns < _RACY_NS


@dataclass(frozen=True, slots=True)
class ScannedFolder:
    """The files of a folder: label → signature, and path → why it is refused."""

    files: dict[str, Signature] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Folder:
    """The folder of one owner.

    Args:
        base: The directory in which ``.memory`` is.
        scope: Whose documents are in it.
    """

    def __init__(self, base: Path, scope: Scope) -> None:
        self.root = base.resolve() / MEMORY_DIR
        self._scope = scope

    def make(self) -> None:
        """Create the folder and its subfolders for logs and cards if they are absent.

        Raises:
            OSError: If it is a link or not a directory.
        """
        self.root.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(self.root, _DIRECTORY)
        try:
            for rule in TIERS.values():
                if self._scope in rule.writers and rule.label.split("/")[0] in _FOLDERS:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(rule.label.split("/")[0], _PRIVATE_FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    def path_of(self, label: str) -> Path:
        """Where a document's file is, for messages."""
        return self.root / label

    def scan(self) -> ScannedFolder:
        """Every file now."""
        hit = ScannedFolder()
        with self._parent(".") as (descriptor, _):
            self._walk(descriptor, "", hit)
        return hit

    def signature(self, label: str) -> Signature | None:
        """The signature of a file; None if the file is absent."""
        try:
            with self._parent(label) as (descriptor, name):
                return Signature.of(os.stat(name, dir_fd=descriptor, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def changed_ago_s(self, label: str) -> float:
        """Seconds since a file or its number of names was changed."""
        with self._parent(label) as (descriptor, name):
            return time.time() - os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_ctime

    def read(self, label: str) -> tuple[Signature, bytes]:
        """A file's signature and text.

        Raises:
            FileRefused: If it is not a regular file, too large or not UTF-8.
            FileNotFoundError: If the file was deleted.
        """
        with self._parent(label) as (parent, name):
            try:
                descriptor = os.open(name, _READ, dir_fd=parent)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise UnreadableFile(f"cannot be read: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile("is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UnreadableFile(f"has more than {MAX_FILE_BYTES} bytes")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"is not UTF-8 (byte {error.start})") from None
        return Signature.of(status), data

    def place(self, label: str, data: bytes, seen: Signature | None, former: str, *, read_only: bool) -> bool:
        """Replace a file by a text.

        Args:
            label: The file.
            data: The text.
            seen: Signature of the file when it was read; None if there was no file.
            former: The second name of the file that is replaced (``former_label``).
            read_only: Whether the file is made read-only.

        Returns:
            Whether the text was written; False if the file has changed since it was read.
        """
        with self._parent(label, create=True) as (parent, name):
            new = _NEW + name
            _write(parent, new, data, _READ_ONLY if read_only else _PRIVATE)
            try:
                if seen is None:
                    os.link(new, name, src_dir_fd=parent, dst_dir_fd=parent)
                    return True
                if not self._keep(parent, name, seen, former):
                    return False
                os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
                return True
            except FileExistsError:
                return False
            finally:
                _unlink(parent, new)
                os.fsync(parent)

    def take_away(self, label: str, seen: Signature, former: str) -> bool:
        """Remove a file; returns as ``place``."""
        with self._parent(label) as (parent, name):
            if not self._keep(parent, name, seen, former):
                return False
            os.unlink(name, dir_fd=parent)
            os.fsync(parent)
        return True

    def keep_beside(self, label: str, data: bytes, changed_ns: int) -> str:
        """Keep a text as ``<name>.conflict-<time>``; returns its label. The same text and time again change nothing."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(changed_ns // 1_000_000_000))
        number = 1
        while True:
            beside = f"{label}.conflict-{stamp}" + (f"-{number}" if number > 1 else "")
            with self._parent(beside, create=True) as (parent, name):
                try:
                    new = _NEW + name
                    _write(parent, new, data, _PRIVATE)
                    os.link(new, name, src_dir_fd=parent, dst_dir_fd=parent)
                    return beside
                except FileExistsError:
                    with contextlib.suppress(UnreadableFile):
                        if self.read(beside)[1] == data:
                            return beside
                    number += 1
                finally:
                    _unlink(parent, new)
                    os.fsync(parent)

    def remove(self, label: str) -> None:
        """Remove a second name if it exists."""
        with contextlib.suppress(FileNotFoundError), self._parent(label) as (parent, name):
            _unlink(parent, name)

    @staticmethod
    def former_label(label: str, seq: int, inode: int) -> str:
        """The second name of the file that version ``seq`` takes the place of."""
        folder, slash, name = label.rpartition("/")
        return f"{folder}{slash}{_OLD}{seq}-{inode}-{name}"

    def _keep(self, parent: int, name: str, seen: Signature, former: str) -> bool:
        """Give the file its second name, if it is as it was seen."""
        try:
            if Signature.of(os.stat(name, dir_fd=parent, follow_symlinks=False)) != seen:
                return False
            second = former.rpartition("/")[2]
            _unlink(parent, second)
            os.link(name, second, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _walk(self, descriptor: int, prefix: str, hit: ScannedFolder) -> None:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.name.startswith(OWN_PREFIX) or _CONFLICT.match(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False) and not prefix and entry.name in _FOLDERS:
                    below = os.open(entry.name, _DIRECTORY, dir_fd=descriptor)
                    try:
                        self._walk(below, f"{path}/", hit)
                    finally:
                        os.close(below)
                elif (problem := self._problem(entry, path)) is not None:
                    hit.refused[path] = problem
                else:
                    with contextlib.suppress(FileNotFoundError):
                        hit.files[path] = Signature.of(entry.stat(follow_symlinks=False))

    def _problem(self, entry: os.DirEntry[str], path: str) -> str | None:
        if entry.is_symlink():
            return "is a link, which is not followed"
        if entry.is_dir(follow_symlinks=False):
            return f"is not a folder of memory documents ({', '.join(sorted(_FOLDERS))})"
        if not entry.is_file(follow_symlinks=False):
            return "is not a regular file"
        named = tier_of_label(path)
        if named is None or not is_mirrored(named[0]) or self._scope not in TIERS[named[0]].writers:
            return f"is not the name of a memory document of the {self._scope.value}"
        return None

    @contextmanager
    def _parent(self, label: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The descriptor of a file's folder, and the file's name."""
        *folders, name = label.split("/")
        descriptor = os.open(self.root, _DIRECTORY)
        try:
            for folder in folders:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, _PRIVATE_FOLDER, dir_fd=descriptor)
                below = os.open(folder, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)


def _write(parent: int, name: str, data: bytes, mode: int) -> None:
    _unlink(parent, name)
    with os.fdopen(os.open(name, _WRITE, _PRIVATE, dir_fd=parent), "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _unlink(parent: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


# Classifies a change of a file: lines were appended, or the text was replaced.


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
    """The version of a document with which a file was last synchronised; sequence 0 for no version."""

    seq: int = 0
    text: UnkeptText = UnkeptText()


@dataclass(frozen=True, slots=True)
class Change:
    """A write: ``append`` with the added text, or ``replace`` with the whole text.

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
    """The write that changes ``base`` to ``data``.

    It is an append if ``data`` begins with ``base`` and the rest consists of complete lines, like every append.
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


# The stored state of a mirror's directory, so that a restart neither repeats nor loses a write.


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
        text: The whole text of the file.
        expected: The version that a replacement expects.
        beside: For a conflict, the separate file with the text.
    """

    write_id: str
    mode: str
    text: UnkeptText
    expected: int
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """The state of a file: the version with which it was last synchronised, and a write that may have been sent."""

    base: Base
    sending: Sending | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """A replaced file that a writer may still have open: its label, and the text that is already in the journal."""

    label: str
    text: UnkeptText


@dataclass(slots=True)
class MirrorState:
    """The state of one directory.

    Attributes:
        path: Its file.
        of: Owners of the documents: workspace, agent and crew.
        mirror: Id of this directory; part of its write ids, so that equal lines of two directories count twice.
        files: ``agent/AGENT.md`` → its known state.
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
        """Load the state of a directory, or create a new state.

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
        """Store the state of a file durably; None removes it."""
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
