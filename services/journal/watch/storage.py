"""Whether a full disk keeps the broker from storing: nats-server then does not answer a write.

Measured with 2.15.1 on a disk that others filled: a single publish gets no answer at all, an atomic batch "incomplete", and
only the server's log says "no space left on device". Invariant: a full disk is claimed only for the disk that was looked at,
with the room it has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ....schemas.errors import StorageFull
from ....schemas.settings import FREE_DISK_FLOOR_BYTES


def disk_trouble(folder: Path) -> StorageFull | None:
    """That the disk of a managed broker is full, None if it has room or cannot be asked; costs a microsecond.

    Args:
        folder: The data directory; no message names it, because every caller may read them.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= FREE_DISK_FLOOR_BYTES:
        return None
    return StorageFull(
        f"the broker stores nothing: the disk of its data directory is full ({free // 2**20} MiB are free, "
        f"{FREE_DISK_FLOOR_BYTES // 2**20} are needed)",
        hint="free disk space, then try again with the same ids: once a write waits, the broker is restarted automatically",
    )
