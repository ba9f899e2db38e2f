"""Documents as files: reading, durable writing and locking below one folder, without following a symbolic link.

Invariant: a file is replaced in one step and is on disk when ``write`` returns; a reader sees the old text or the new one.
Every folder on the way is opened relative to the one above it, so nothing outside of the root is reached.
All functions block, and raise OSError if the disk refuses.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from ....schemas.errors import WriteRefused

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REFUSED: Final = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.EISDIR)
"""Error numbers of ``open`` with O_NOFOLLOW for a symbolic link, and for a folder that is opened as a file."""
_LOG_BYTES: Final = 65_536
"""Bytes of a write log that are read: the last 400 writes or so."""


@contextmanager
def folder(root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int | None]:
    """The descriptor of the folder ``parts`` below ``root``; None if it is not there and not to be made.

    Raises:
        WriteRefused: If a part of the path is a symbolic link or a file.
        OSError: If the root is missing, or the disk refuses.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with _named(part):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                try:
                    below = os.open(part, _FOLDER, dir_fd=descriptor)
                except FileNotFoundError:
                    yield None
                    return
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def read(name: str, folder: int) -> str | None:
    """The text of a file; None if there is none.

    Raises:
        WriteRefused: If it is a symbolic link or a folder.
    """
    with _named(name):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()


def write(name: str, folder: int, text: str) -> None:
    """Replace a file: a temporary sibling, fsync, rename, fsync of the folder."""
    candidate = f".{name}.{secrets.token_hex(8)}.tmp"
    with _named(name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(candidate, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(candidate, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(candidate, dir_fd=folder)
            raise
        os.fsync(folder)


def remove(name: str, folder: int) -> None:
    """Remove a file, durably."""
    with _named(name):
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def labels(memory: int, folder: str = "") -> list[str]:
    """Files below a ``.memory`` folder, by label; hidden ones and symbolic links are left out.

    Args:
        memory: Descriptor of the folder.
        folder: Path of that folder below ``.memory``, empty or ending in ``/``.
    """
    names = []
    for entry in _regular(memory):
        if entry.is_file(follow_symlinks=False):
            names.append(folder + entry.name)
        elif entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, _FOLDER, dir_fd=memory)
            try:
                names += labels(below, f"{folder}{entry.name}/")
            finally:
                os.close(below)
    return sorted(names)


def total_bytes(memory: int) -> int:
    """Bytes of all documents of a ``.memory`` folder."""
    return sum(os.stat(label, dir_fd=memory, follow_symlinks=False).st_size for label in labels(memory))


class WriteLog:
    """The writes of one document: a line each, ``write id, sha256 before, sha256 after``; also the document's lock.

    Why before and after: a line is written before the file is replaced. If the process ends in between, the next write
    begins with the same text as the failed one; that distinguishes the failed one from the others.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        end = os.lseek(descriptor, 0, os.SEEK_END)
        start = max(0, end - _LOG_BYTES)
        kept, _, torn = os.pread(descriptor, _LOG_BYTES, start).rpartition(b"\n")
        if torn:
            os.ftruncate(descriptor, end - len(torn))
        lines = kept.decode("ascii").split("\n")[1 if start else 0 :]
        self._lines = [tuple(line.split(" ")) for line in lines if line]

    @classmethod
    @contextmanager
    def locked(cls, name: str, folder: int) -> Iterator[Self]:
        """The log ``name``, held by this caller alone, among all processes of the machine."""
        with _named(name):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield cls(descriptor)
            finally:
                os.close(descriptor)

    def has(self, write_id: str, present: str) -> bool:
        """Whether the write happened; ``present`` is the SHA-256 of the document now."""
        for place, (known, before, after) in enumerate(self._lines):
            if known == write_id:
                following = self._lines[place + 1][1] if place + 1 < len(self._lines) else present
                if following != before or before == after:
                    return True
        return False

    def add(self, write_id: str, before: str, after: str) -> None:
        """Record a write that is about to happen, durably."""
        os.write(self._descriptor, f"{write_id} {before} {after}\n".encode("ascii"))
        os.fsync(self._descriptor)


def _regular(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn a link, or a folder where a file is expected, into a refusal."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise WriteRefused(
            f"{name} is a symbolic link, or a folder in place of a file",
            hint="memory is never read or written through links: move it away",
        ) from None
