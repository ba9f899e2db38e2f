"""Streamed answers, without I/O: splits bytes into lines and lines into events, and decides when to reconnect.

Invariant: a tail resumes after the last entry that it has yielded, so that no entry is missed or repeated after
interruptions. Only LF ends a line, because JSON may contain other Unicode separators.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ...schemas.api import EntryRecord, TailGap
from ...schemas.core.errors import CrewJournalError, TooManyTails, Unavailable
from ...schemas.core.faults import error_of
from .core import HttpRequest, params_of, pause_before

RESUME_FOR_S: Final = 60.0
"""Seconds for which a tail tries to reconnect."""
TAIL_SILENCE_S: Final = 45.0
"""Seconds without a byte after which a tail counts as broken; heartbeats come every 15 s."""


class Lines:
    """Splits received bytes into complete lines without LF."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that ``piece`` completes."""
        self._rest += piece
        *whole, rest = self._rest.split(b"\n")
        self._rest = rest
        yield from (bytes(line) for line in whole)


class Tail:
    """One tail over any number of connections.

    Args:
        given: Filters and workspace.
        after: Resume after this sequence; None for the newest.
        on_gap: Called when more entries were missed than the service replays.
    """

    def __init__(
        self, given: Mapping[str, object], after: int | None, on_gap: Callable[[TailGap], None] | None
    ) -> None:
        self._params = params_of(given)
        self._last = after
        self._on_gap = on_gap
        self._attempt = 0
        self._broken_since: float | None = None
        self._shown = False
        self._begin()

    def _begin(self) -> None:
        self._lines = Lines()
        self._event = ""
        self._data: list[bytes] = []

    def request(self) -> HttpRequest:
        """The request of the next connection."""
        self._begin()
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = str(self._last)
        return HttpRequest("GET", "/v1/journal/stream", self._params, headers=headers)

    def feed(self, piece: bytes) -> Iterator[EntryRecord]:
        """The entries that ``piece`` completes."""
        self._attempt, self._broken_since, self._shown = 0, None, True
        for line in self._lines.feed(piece):
            if line:
                self._field(line)
                continue
            event, data = self._event or "message", b"\n".join(self._data)
            self._event, self._data = "", []
            if event == "entry":
                entry = EntryRecord.model_validate_json(data)
                self._last = entry.seq
                yield entry
            elif event == "gap" and self._on_gap is not None:
                self._on_gap(TailGap.model_validate_json(data))

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", errors="replace")
        elif name == b"data":
            self._data.append(value)

    def pause_after(self, error: Exception) -> float:
        """``pause`` after a connection that failed.

        Raises:
            TooManyTails: If the tail was refused at its first connection; a broken tail waits until its old connection
                is counted no more.
            Unavailable: As in ``pause``.
        """
        if isinstance(error, TooManyTails) and not self._shown:
            raise error
        return self.pause(error.message if isinstance(error, Unavailable) else type(error).__name__)

    def pause(self, reason: str) -> float:
        """Seconds until the next connection, after a connection ended or broke.

        Raises:
            Unavailable: If the tail has been interrupted for too long.
        """
        now = time.monotonic()
        self._broken_since = self._broken_since or now
        if now - self._broken_since > RESUME_FOR_S:
            raise Unavailable(
                f"the live tail was interrupted and could not be resumed: {reason}",
                hint=f"resume after sequence {self._last}",
            )
        self._attempt += 1
        return pause_before(self._attempt)


def record_of(line: bytes) -> dict[str, Any]:
    """Parse one line of a long operation.

    Raises:
        CrewJournalError: If the line reports a failure.
    """
    record = json.loads(line)
    if not isinstance(record, dict):
        raise CrewJournalError("the service answered a line that is not a JSON object")
    if isinstance(problem := record.get("error"), dict):
        raise error_of(int(problem.get("status", 500)), problem)
    return record
