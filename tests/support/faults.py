"""Faults of the machine that a test can bring about for a moment, in its own process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.stack import until

FILE_LIMIT = 1 << 16


@contextmanager
def no_file_grows() -> Iterator[None]:
    """Within it no file of this process can be written behind its first 64 KiB: the write fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def stop(pid: int) -> None:
    """SIGSTOP, and return when every thread of the process stands still: on a busy machine they go on for a while."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    await until(
        lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir())
    )
