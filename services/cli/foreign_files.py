"""Finds and opens files of other programs within limits: a file, a folder of files, or a ZIP archive.

Exports are untrusted: a pipe may never end, a link may lead out of the folder, an archive of 3 MB may unpack to
gigabytes. Invariant: every importer opens its files here. Only regular files are opened, links in a folder are not
followed, and every read has a limit. Links and special files are left out and counted; every other problem is an error
that names the file or member.
"""

from __future__ import annotations

import errno
import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Final

from ...schemas.core.errors import InvalidFile

MAX_FILES: Final = 200_000
"""Files of a folder, or members of an archive; a workspace of Slack with 500 channels has so many days in two years."""
MAX_DEPTH: Final = 32
"""Folders within folders; exports have at most five."""
MAX_UNPACKED_BYTES: Final = 8 << 30
"""Bytes of all members of an archive that are read, unpacked; large exports have 1 to 2 GB."""
MAX_RATIO: Final = 200
"""Unpacked bytes for each byte of a member; chats as JSON have 3 to 20, and DEFLATE reaches 1,030."""
RATIO_FROM_BYTES: Final = 16 << 20
"""Unpacked bytes below which a member may have any ratio."""
MAX_TEXT_BYTES: Final = 16 << 20
"""Maximum bytes of a text that is read completely; books have one to three million."""
_DIRECTORY_BYTES: Final = 400
"""Bytes of a member in the archive's directory, at most on average: 46 and its name."""
_END: Final = b"PK\x05\x06"
_END_64: Final = b"PK\x06\x06"
_ARCHIVE: Final = (b"PK\x03\x04", _END)
_END_BYTES: Final = 22 + 65_535
_LINK: Final = 0xA
_ENCRYPTED: Final = 0x1
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting, because the opening of a pipe waits for a writer."""
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What ``zipfile`` raises for members that are damaged, encrypted or packed by an unknown method."""
_UNPACK: Final = "unpack it with another program and import the folder"

LINKED: Final = "links, which are not followed"
SPECIAL: Final = "neither files nor folders"
LeftOut = Callable[[str, str], object]
"""Called with the path within the folder or archive and the reason, for each file that is left out."""


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A regular file, or a member of an archive.

    Attributes:
        label: Its name in messages.
        inside: Its path within the folder or archive, with ``/``; the name of a single file.
        size: Its unpacked bytes.
        opened: Opens it.
        mtime: When it was changed, seconds since 1970; 0 for a member of an archive.
    """

    label: str
    inside: str
    size: int
    opened: Callable[[], IO[bytes]]
    mtime: float = 0

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file for reading.

        Raises:
            InvalidFile: If it cannot be opened or read, also while it is read.
        """
        try:
            with self.opened() as file:
                yield file
        except OSError as error:
            raise InvalidFile(f"{self.label} cannot be read: {error.strerror or error}") from None
        except _BROKEN as error:
            raise InvalidFile(f"{self.label} cannot be unpacked: {_plain(error)}", hint=_UNPACK) from None

    def read(self, limit: int) -> bytes:
        """Its bytes.

        Args:
            limit: Maximum bytes.

        Raises:
            InvalidFile: If it is larger, or cannot be read.
        """
        with self.open() as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidFile(f"{self.label} has more than {limit:,} bytes", hint="split it")
        return data


def text_of(file: ForeignFile, limit: int = MAX_TEXT_BYTES) -> str:
    """A whole file as text.

    Raises:
        InvalidFile: If it is larger, not UTF-8, or cannot be read.
    """
    try:
        return file.read(limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file.label} is not UTF-8 text (byte {error.start})", hint="write it as UTF-8") from None


def files_of(
    path: Path, wanted: Callable[[str], bool], left_out: LeftOut, *, archives: bool = False, hidden: bool = True
) -> Iterator[ForeignFile]:
    """The files of a folder or an archive, in the order of their paths, or the one file.

    Args:
        path: The path that a person named; it may be a link.
        wanted: Returns whether to read a path within the folder or archive; not called for a single file.
        left_out: Called for each wanted file that is a link or special.
        archives: Whether a ZIP archive is opened; otherwise it is a file like any other.
        hidden: Whether files and folders whose names begin with a dot are read.

    Raises:
        InvalidFile: If ``path`` is not a regular file or folder, or a limit is exceeded.
    """
    if path.is_dir():
        yield from _of_folder(path, wanted, left_out, hidden)
        return
    foreign_file = file_at(path)
    if archives:
        with foreign_file.open() as file:
            is_archive = file.read(4).startswith(_ARCHIVE)
        if is_archive:
            yield from _of_archive(path, wanted, left_out)
            return
    yield foreign_file


def file_at(path: Path, *, follow: bool = True) -> ForeignFile:
    """A regular file.

    Args:
        path: Its path.
        follow: Whether it may be a link.

    Raises:
        InvalidFile: If it is not a regular file.
    """
    label = shown(str(path))
    try:
        status = path.stat(follow_symlinks=follow)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{label} cannot be read: {_plain(error)}", hint="name a file or a folder") from None
    if not stat.S_ISREG(status.st_mode):
        what = "is a link, which is not followed" if stat.S_ISLNK(status.st_mode) else "is not a regular file"
        raise InvalidFile(f"{label} {what}", hint="copy its content to a file")
    opened = partial(_opened, path, 0 if follow else os.O_NOFOLLOW)
    return ForeignFile(label, shown(path.name), status.st_size, opened, status.st_mtime)


def shown(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 become ``�``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _opened(path: Path, flags: int) -> IO[bytes]:
    descriptor = os.open(path, _OPEN | flags)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _of_folder(root: Path, wanted: Callable[[str], bool], left_out: LeftOut, hidden: bool) -> Iterator[ForeignFile]:
    files: list[tuple[tuple[str, ...], Path]] = []
    seen = 0
    folders: list[tuple[str, ...]] = [()]
    while folders:
        parts = folders.pop()
        if len(parts) > MAX_DEPTH:
            raise InvalidFile(f"{shown(str(root))} has folders deeper than {MAX_DEPTH} levels", hint="name one of them")
        try:
            entries = list(os.scandir(root.joinpath(*parts)))
        except OSError as error:
            raise InvalidFile(f"{shown(str(root.joinpath(*parts)))} cannot be read: {error.strerror}") from None
        seen += len(entries)
        if seen > MAX_FILES:
            raise InvalidFile(f"{shown(str(root))} has more than {MAX_FILES:,} files", hint="import parts of it")
        for entry in entries:
            inside = (*parts, entry.name)
            if not hidden and entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(inside)
            elif not wanted("/".join(inside)):
                continue
            elif entry.is_file(follow_symlinks=False):
                files.append((inside, Path(entry.path)))
            else:
                left_out(shown("/".join(inside)), LINKED if entry.is_symlink() else SPECIAL)
    for inside, path in sorted(files):
        yield replace(file_at(path, follow=False), inside=shown("/".join(inside)))


def _of_archive(path: Path, wanted: Callable[[str], bool], left_out: LeftOut) -> Iterator[ForeignFile]:
    label = shown(str(path))
    with file_at(path).open() as file:
        _refuse_large_directory(label, file)
        archive = _archive(label, file)
        members = sorted(archive.infolist(), key=lambda info: info.filename)
        if len(members) > MAX_FILES:
            raise InvalidFile(f"{label} has {len(members):,} of at most {MAX_FILES:,} members")
        unpacked = 0
        for info in members:
            if info.is_dir() or not wanted(info.filename):
                continue
            if (info.external_attr >> 28) == _LINK:
                left_out(shown(info.filename), LINKED)
                continue
            name = f"{label}:{shown(info.filename)}"
            _refuse_member(name, info)
            unpacked += info.file_size
            if unpacked > MAX_UNPACKED_BYTES:
                raise InvalidFile(
                    f"{label} unpacks to more than {MAX_UNPACKED_BYTES:,} bytes", hint="import parts of it"
                )
            yield ForeignFile(name, shown(info.filename), info.file_size, partial(archive.open, info))


def _archive(label: str, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (*_BROKEN, ValueError, LookupError, struct.error, OverflowError) as error:
        raise InvalidFile(f"{label} is not a whole ZIP archive: {_plain(error)}", hint=_UNPACK) from None


def _refuse_member(name: str, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise InvalidFile(f"{name} is encrypted", hint=_UNPACK)
    if info.file_size > RATIO_FROM_BYTES and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        raise InvalidFile(
            f"{name} unpacks from {info.compress_size:,} to {info.file_size:,} bytes, more than {MAX_RATIO} to 1",
            hint="if you trust it, unpack it and import the folder",
        )


def _refuse_large_directory(label: str, file: IO[bytes]) -> None:
    """``zipfile`` reads an archive's directory as a whole, at ten times its size in memory."""
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - _END_BYTES - 76))
    tail = file.read()
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    sizes = [struct.unpack_from("<I", tail, at + 12)[0]] if 0 <= at <= len(tail) - 16 else [0]
    if sizes == [0xFFFFFFFF] and 0 <= at_64 <= len(tail) - 48:
        sizes = [struct.unpack_from("<Q", tail, at_64 + 40)[0]]
    if sizes[0] > MAX_FILES * _DIRECTORY_BYTES:
        raise InvalidFile(f"{label} has too many members, or too long names", hint=_UNPACK)
    file.seek(0)


def _plain(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
