"""A settings file of another program: read once, and replaced only if it is still what was read.

Invariant: no link is followed below the base directory. The file keeps its mode and owner, appears as a whole (temporary
sibling, fsync, rename), and a change by somebody else between the reading and the replacing is never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...schemas.errors import CrewJournalError, InvalidQuery, NotAllowed

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
MAX_BYTES: Final = 64_000_000
"""Largest file that is edited; Claude Code's ``.claude.json`` grows to some megabytes."""


class OtherFile:
    """A file below a base directory, as it is now.

    Args:
        base: A directory that the person named, or the home directory; links in its own path count.
        below: The path of the file below it.

    Raises:
        NotAllowed: If a part of the path is a link.
        InvalidQuery: If it is not a regular file, or too large.
    """

    def __init__(self, base: Path, below: str) -> None:
        self.path = base / below
        self._base = base
        self._folders, self._name = below.split("/")[:-1], below.split("/")[-1]
        self.before = self._read()
        """Its content; None if it is absent."""

    def replace(self, content: bytes) -> None:
        """Put other content in its place.

        Raises:
            CrewJournalError: If it is not what was read any more.
            NotAllowed: If a part of the path became a link, or the file's owner cannot be kept.
        """
        with self._folder(create=True) as folder:
            draft = f".{self._name}.crew-journal-{secrets.token_hex(8)}"
            descriptor = os.open(draft, _NEW, _PRIVATE_FILE, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    self._keep_rights(folder, descriptor)
                    os.fsync(descriptor)
                if self._read() != self.before:
                    raise CrewJournalError(
                        f"{self.path} was changed by another program in the meantime; it was left as it is",
                        hint="run the command again",
                    )
                os.rename(draft, self._name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)

    def _keep_rights(self, folder: int, draft: int) -> None:
        try:
            former = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        fresh = os.fstat(draft)
        if (former.st_uid, former.st_gid) != (fresh.st_uid, fresh.st_gid):
            try:
                os.fchown(draft, former.st_uid, former.st_gid)
            except PermissionError:
                raise NotAllowed(
                    f"{self.path} belongs to another user or group", hint="run the command as its owner"
                ) from None
        os.fchmod(draft, stat.S_IMODE(former.st_mode))

    def _read(self) -> bytes | None:
        try:
            with self._folder() as folder:
                descriptor = os.open(self._name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError:
            raise self._refused(self.path) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidQuery(f"{self.path} is not a regular file", hint="move it away, then connect again")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > MAX_BYTES:
            raise InvalidQuery(f"{self.path} has more than {MAX_BYTES} bytes", hint="edit it yourself")
        return content

    @contextmanager
    def _folder(self, *, create: bool = False) -> Iterator[int]:
        """The descriptor of the file's folder."""
        if create:
            self._base.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(self._base.resolve(), _DIRECTORY)
        try:
            for number, name in enumerate(self._folders):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, _PRIVATE_FOLDER, dir_fd=descriptor)
                try:
                    below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                except FileNotFoundError:
                    raise
                except OSError:
                    raise self._refused(self._base.joinpath(*self._folders[: number + 1])) from None
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _refused(path: Path) -> NotAllowed:
        if path.is_symlink():
            return NotAllowed(
                f"{path} is a link to {path.readlink()}, which is not followed",
                hint="put the file itself there, or add the entries to its target yourself",
            )
        return NotAllowed(f"{path} cannot be opened", hint="make it readable and writable for you")
