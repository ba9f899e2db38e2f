"""A stderr whose full disk fails nobody: without it a task that logs would end with the line that cannot be written.

Invariant: writing to stderr never fails. A line that cannot be written is lost or late; the next one is tried.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, TextIO, cast


class Unfailing:
    """A text stream whose writes never raise ``OSError``; everything else is the stream's own.

    Args:
        stream: Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, or lose it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or leave it to the next time."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_stderr_unfailing() -> None:
    """Put an unfailing stream in the place of ``sys.stderr``; the interpreter flushes it at its end, too."""
    if not isinstance(sys.stderr, Unfailing):
        sys.stderr = cast(TextIO, Unfailing(sys.stderr))
