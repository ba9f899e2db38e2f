"""Opens the views again when DuckDB has given their file up, so that a full disk does not require a restart.

Why: when DuckDB 2.0 cannot write a checkpoint it refuses everything from then on, reads included ("database has been
invalidated because of a previous fatal error"), until the file is closed and opened. Opening takes no room on the disk, and
the log holds every commit (measured on a full tmpfs). Invariant: the file is reopened on the writer thread alone, while no
reader is inside; what DuckDB cannot do for want of disk or memory is a 503 with the reason, not an unexpected fault.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

import duckdb
import structlog

from ...schemas.errors import Unavailable
from .damage import text_of

_GIVEN_UP: Final = (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException)
"""After the first two DuckDB refuses the file, the third is a file that could not be opened again."""
_ORIGINAL: Final = re.compile(r'Original error: "(.*)"', re.DOTALL)
_HINT: Final = "free disk space or memory if it lasts: it is tried again by itself; see crew-journal status"

_log = structlog.get_logger(__name__)


class ViewsUnusable(Unavailable):
    """DuckDB cannot read or write the views for want of disk or memory, or their file is about to be opened again."""

    title = "The views cannot be used"


class Reopening:
    """Whether DuckDB has given the file up, why, and the opening of it.

    Args:
        reopen: Closes and opens the file, readers kept out; called on the writer thread.
        submit: Runs a function on the writer thread, after earlier work.
    """

    def __init__(self, reopen: Callable[[], None], submit: Callable[[Callable[[], None]], Future[None]]) -> None:
        self._reopen = reopen
        self._submit = submit
        self._asked_at = -1
        self.count = 0
        """How often the file was opened again: what was known of it under another count may be out of date."""
        self.trouble: str | None = None
        """Why the file cannot be used at the moment, None if it can."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around every use of the file, inside the gate.

        Raises:
            ViewsUnusable: In place of what DuckDB says of disk, memory or a file it has given up; that is reopened soon.
        """
        count = self.count
        try:
            yield
        except (duckdb.OperationalError, duckdb.FatalException, duckdb.InternalException) as error:
            reason = _reason_of(error)
            if isinstance(error, _GIVEN_UP):
                self.trouble = reason = self.trouble or reason
                self._ask(count)
            raise ViewsUnusable(f"the views cannot be used: {reason}", hint=_HINT) from error

    def _ask(self, count: int) -> None:
        if count > self._asked_at:
            self._asked_at = count
            with contextlib.suppress(RuntimeError):  # the store is being closed
                self._submit(lambda: self._mend(count))

    def _mend(self, count: int) -> None:
        if count != self.count:
            return  # two asked at once
        _log.error("views.given_up", reason=self.trouble)
        try:
            self._reopen()
        except Exception as error:  # the next read or write asks again
            self._asked_at = count - 1
            _log.error("views.not_reopened", error=str(error))
        else:
            self.count += 1
            self.trouble = None
            _log.warning("views.reopened", times=self.count)


def _reason_of(error: duckdb.Error) -> str:
    """What DuckDB says; of a file given up earlier, what it said then."""
    original = _ORIGINAL.search(str(error))
    return text_of(error) if original is None else text_of(duckdb.Error(original[1]))
