"""A lock that readers share and a swap holds alone, so that a file is replaced while no reader uses it.

Invariant: inside ``closed()`` no reader is inside ``reading()``; readers that come meanwhile wait, bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...schemas.errors import Unavailable

WAIT_S: Final = 30.0
"""Seconds a reader waits for a swap, and a swap for readers; a swap takes well under one."""


class ReadGate:
    """Counts readers; re-entrant reading is not allowed while a swap may wait."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._closed = False
        self._shut = False

    @property
    def is_shut(self) -> bool:
        """Whether it was closed permanently."""
        return self._shut

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Pass as a reader.

        Raises:
            Unavailable: If the store is closed, or a swap takes too long.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: not self._closed or self._shut, WAIT_S) or self._shut:
                raise Unavailable("the views are closed", hint="try again in a moment")
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                if not self._readers:
                    self._condition.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait until the last reader is out and keep others out.

        Raises:
            Unavailable: If a reader does not leave within the bound.
        """
        with self._condition:
            self._closed = True
            if not self._condition.wait_for(lambda: not self._readers, WAIT_S):
                self._closed = False
                self._condition.notify_all()
                raise Unavailable("a reader still uses the views", hint="try again")
        try:
            yield
        finally:
            with self._condition:
                self._closed = False
                self._condition.notify_all()

    def shut(self) -> None:
        """Wait for the readers inside, then refuse new ones."""
        with self._condition:
            self._shut = True
            self._condition.wait_for(lambda: not self._readers, WAIT_S)
            self._condition.notify_all()
