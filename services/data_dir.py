"""The data directory of a node: who owns it, how clients find it, what the node is called on the broker.

Invariant: one process owns a data directory at a time; ``runtime.json`` is there only while a service answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..schemas.errors import DataDirBusy

RUNTIME_FILE: Final = "runtime.json"
LOCK_FILE: Final = "lock"
NODE_FILE: Final = "node.id"
SUBJECT_KEY_FILE: Final = "subject.key"
_KEY_BYTES: Final = 32
_LOCK_TRIES: Final = 100
_LOCK_PAUSE_S: Final = 0.005
"""Half a second in total; a probe holds the lock for some microseconds."""


def lock(data_dir: Path) -> Callable[[], None]:
    """Take the data directory's lock; returns a function that releases it.

    :func:`is_owned` holds a shared lock for a moment, so this waits for it. A ``runtime.json`` that still exists was left by
    a killed process; it is removed.

    Raises:
        DataDirBusy: If another process owns the directory.
    """
    descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        if _took(descriptor, fcntl.LOCK_EX):
            (data_dir / RUNTIME_FILE).unlink(missing_ok=True)
            return lambda: os.close(descriptor)
        if not _took(descriptor, fcntl.LOCK_SH):
            break  # an owner holds it, not a probe
        fcntl.flock(descriptor, fcntl.LOCK_UN)
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

    A lock of another user cannot be probed; the directory then counts as owned.
    """
    try:
        descriptor = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        return not _took(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _took(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def announce(data_dir: Path, http: str, nats: str) -> Callable[[], None]:
    """Write ``runtime.json`` atomically; returns a function that removes it."""
    path = data_dir / RUNTIME_FILE
    candidate = path.with_suffix(".tmp")
    candidate.write_text(json.dumps({"http": http, "nats": nats, "pid": os.getpid()}) + "\n")
    candidate.replace(path)
    return lambda: path.unlink(missing_ok=True)


def node_id(data_dir: Path) -> str:
    """Names this node's durable on the broker, so that several nodes on one broker each see every message."""
    from ..schemas.ids import is_id, uuid7_hex  # here: hooks import this module, and uuid is slow to import

    path = data_dir / NODE_FILE
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text("ascii", errors="replace").strip()
        if is_id(known):
            return known
    minted = uuid7_hex()
    path.write_text(minted + "\n", "ascii")
    return minted


def subject_key(data_dir: Path) -> bytes:
    """The key of the hash that names people in events, made at the first start.

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
    """Write the key that names people, so that only the owner can read the file."""
    path = data_dir / SUBJECT_KEY_FILE
    candidate = path.with_suffix(".tmp")
    with os.fdopen(os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(key.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    candidate.replace(path)
