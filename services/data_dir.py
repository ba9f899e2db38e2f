"""The data directory of a node: who owns it, how clients find it, what the node is called on the broker.

Invariant: one process owns a data directory at a time; ``runtime.json`` is there only while a service answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crew_journal.schemas.errors import DataDirBusy
from crew_journal.schemas.ids import is_id, uuid7_hex

RUNTIME_FILE: Final = "runtime.json"
LOCK_FILE: Final = "lock"
NODE_FILE: Final = "node.id"


def lock(data_dir: Path) -> Callable[[], None]:
    """Take the data directory's lock; returns the way to give it back."""
    descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DataDirBusy(
            f"another process owns {data_dir}",
            hint="stop it, or use another --data-dir; client commands find it by themselves",
        ) from None
    return lambda: os.close(descriptor)


def announce(data_dir: Path, http: str, nats: str) -> Callable[[], None]:
    """Write ``runtime.json`` in one piece; returns the way to remove it."""
    path = data_dir / RUNTIME_FILE
    candidate = path.with_suffix(".tmp")
    candidate.write_text(json.dumps({"http": http, "nats": nats, "pid": os.getpid()}) + "\n")
    candidate.replace(path)
    return lambda: path.unlink(missing_ok=True)


def node_id(data_dir: Path) -> str:
    """Names this node's durable on the broker, so that several nodes on one broker each see every message."""
    path = data_dir / NODE_FILE
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text("ascii", errors="replace").strip()
        if is_id(known):
            return known
    minted = uuid7_hex()
    path.write_text(minted + "\n", "ascii")
    return minted
