"""The data directory of a node: its lock, the files by which clients find the node, and the node's id.

Invariant: one process owns a data directory at a time; ``runtime.json`` exists only while a service answers. A file of
the directory is read without following a link or waiting for a pipe, because a directory may come with a cloned
repository.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..schemas.core.errors import DataDirBusy

RUNTIME_FILE: Final = "runtime.json"
LOCK_FILE: Final = "lock"
NODE_FILE: Final = "node.id"
SUBJECT_KEY_FILE: Final = "subject.key"
PASSWORDS_FILE: Final = "passwords.json"
PASSWORDS_BYTES: Final = 4 << 20
"""Largest size of the file with the hashes of passwords; a hash has 150 bytes."""
IGNORE_FILE: Final = ".gitignore"
TOKEN_FILE: Final = "admin.token"
_SMALL_BYTES: Final = 65_536
"""Largest size of a file that is read as a whole; tokens and addresses have under 300 bytes."""
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | _NO_LINK
_KEY_BYTES: Final = 32
_LOCK_TRIES: Final = 100
_LOCK_PAUSE_S: Final = 0.005
"""Half a second in total; a probe holds the lock for some microseconds."""


def make_private(data_dir: Path) -> None:
    """Create the directory, accessible only by its owner, and its ``.gitignore``, so that git never stages its secrets."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(data_dir / IGNORE_FILE, flags, 0o600), "w", encoding="ascii") as file:
            file.write("*\n")


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` atomically and durably, with mode 0600; the folder is made if it is absent."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def small_file(path: Path, most_bytes: int = _SMALL_BYTES) -> bytes | None:
    """The content of a regular file; None if it is absent, something else (a link, too), larger or not readable."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if len(content) <= most_bytes else None


def lock(data_dir: Path) -> Callable[[], None]:
    """Take the data directory's lock; returns a function that releases it.

    :func:`is_owned` holds a shared lock for a moment, so this waits for it. A ``runtime.json`` that still exists was left by
    a killed process; it is removed.

    Raises:
        DataDirBusy: If another process owns the directory.
    """
    descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | _NO_LINK, 0o600)
    for _ in range(_LOCK_TRIES):
        if _took(descriptor, shared=False):
            (data_dir / RUNTIME_FILE).unlink(missing_ok=True)
            return lambda: os.close(descriptor)
        if not _took(descriptor, shared=True):
            break  # a service holds the lock, not a probe
        _release(descriptor)
        time.sleep(_LOCK_PAUSE_S)
    os.close(descriptor)
    if (data_dir / RUNTIME_FILE).exists():
        raise DataDirBusy(
            f"another process owns {data_dir}",
            hint="stop it, or use another --data-dir; client commands find it by themselves",
        )
    raise DataDirBusy(
        f"another process is starting or ending the journal in {data_dir}",
        hint="try again when it has finished, or stop it",
    )


def is_owned(data_dir: Path) -> bool:
    """Whether a process owns the directory now, so that its ``runtime.json`` is not left over from a killed one.

    A lock file that cannot be opened (of another user, or a link) counts as not held, because it is no evidence of a
    service.
    """
    try:
        descriptor = os.open(data_dir / LOCK_FILE, _READ)
    except OSError:
        return False
    try:
        return not _took(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _took(descriptor: int, *, shared: bool) -> bool:
    import fcntl  # imported late, because clients on Windows import this module and lock nothing

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(descriptor: int) -> None:
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


@dataclass(frozen=True, slots=True)
class Running:
    """The content of ``runtime.json`` of a running ``up``.

    Attributes:
        http: Its HTTP address.
        pid: Its process.
        seal: Proof that the file was written by a process that knows the owner's token; empty if absent.
        nats: Its broker.
    """

    http: str
    pid: int
    seal: str = field(default="", repr=False)
    nats: str = ""

    def sealed(self, token: str) -> str:
        """The seal of these values: HMAC-SHA256 with the owner's token as the key."""
        import hmac  # imported late, because most hooks do not need it, and the import takes 3 ms

        facts = json.dumps([self.http, self.nats, self.pid])
        return hmac.new(token.encode(), facts.encode(), "sha256").hexdigest()

    def is_sealed_by(self, token: str | None) -> bool:
        """Whether the seal was made with an owner's token; False without a token."""
        import hmac

        return bool(token) and hmac.compare_digest(self.seal.encode(), self.sealed(token or "").encode())


def announce(data_dir: Path, http: str, nats: str, token: str) -> Callable[[], None]:
    """Write ``runtime.json`` atomically, sealed with the owner's token; returns a function that removes it."""
    facts = Running(http, os.getpid(), nats=nats)
    path = data_dir / RUNTIME_FILE
    candidate = path.with_suffix(".tmp")
    known = {"http": http, "nats": nats, "pid": facts.pid, "seal": facts.sealed(token)}
    candidate.write_text(json.dumps(known) + "\n")
    candidate.replace(path)
    return lambda: path.unlink(missing_ok=True)


def read_running(data_dir: Path) -> Running | None:
    """The content of ``runtime.json`` if a process owns the directory; the service may not answer.

    After a process was killed, another service may use its port and must not get a token.
    """
    try:
        known = json.loads(small_file(data_dir / RUNTIME_FILE) or b"")
        running = Running(str(known["http"]), int(known["pid"]), str(known.get("seal", "")), str(known.get("nats", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return running if is_owned(data_dir) else None


def read_owner_token(data_dir: Path) -> str | None:
    """The owner's token of a data directory; None if it cannot be read."""
    try:
        return (small_file(data_dir / TOKEN_FILE) or b"").decode("ascii").strip() or None
    except UnicodeDecodeError:
        return None


def node_id(data_dir: Path) -> str:
    """The node's id, part of its durable's name, so that each of several nodes on one broker gets every message."""
    from ..schemas.core.ids import (
        is_id,
        uuid7_hex,
    )  # imported late, because hooks import this module, and uuid is slow to import

    path = data_dir / NODE_FILE
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text("ascii", errors="replace").strip()
        if is_id(known):
            return known
    minted = uuid7_hex()
    path.write_text(minted + "\n", "ascii")
    return minted


def subject_key(data_dir: Path) -> bytes:
    """The key with which people's names are hashed in events, generated at the first start.

    It is not part of the journal, so a hash alone does not reveal the person; a backup contains it. All nodes of a journal
    need the same key.
    """
    path = data_dir / SUBJECT_KEY_FILE
    with contextlib.suppress(FileNotFoundError):
        return bytes.fromhex(path.read_text("ascii"))
    made = os.urandom(_KEY_BYTES)
    keep_subject_key(data_dir, made)
    return made


def keep_subject_key(data_dir: Path, key: bytes) -> None:
    """Write the key with which people's names are hashed, readable only by the owner."""
    write_private(data_dir / SUBJECT_KEY_FILE, key.hex() + "\n")
