"""Ending a command that runs in threads: the first signal asks it to stop, the second ends it.

Invariant: the former handlers are back when the block is left.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stopped: threading.Event) -> Iterator[None]:
    """Within the block, SIGINT and SIGTERM set ``stopped``; a second one raises ``KeyboardInterrupt``."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():  # do not wait for the request under way
            raise KeyboardInterrupt
        stopped.set()

    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
