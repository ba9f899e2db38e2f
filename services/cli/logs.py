"""Where the log goes: stderr, one line an event, with ids and sequences and never the text of a memory.

On a terminal, events that need attention are printed as plain text. If stderr is not a terminal, or a level is set
(``CREW_JOURNAL_LOG_LEVEL``), the log is JSON. Invariant: stdout belongs to data; no library logs there. If a service's
stderr is not a terminal, every line is JSON, including those of libraries, warnings, uncaught errors of threads and
tasks, and messages to people. Writing to stderr never fails: on a full disk, the line is lost and the task continues.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from ..printable import safe

if TYPE_CHECKING:
    import structlog

LEVEL_VARIABLE: Final = "CREW_JOURNAL_LOG_LEVEL"
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NOISY: Final = ("httpx", "httpcore", "nats", "faststream", "uvicorn.access", "uvicorn.error", "asyncio")
"""Libraries whose INFO is about themselves; they are logged from WARNING on."""
_NOT_DETAILS: Final = ("event", "level", "timestamp")


def configure_logging(level: str, *, service: bool = False) -> None:
    """Send the log to stderr.

    JSON from ``level`` on; on a terminal without a level in the environment, plain lines from ``level`` or warning on.

    Args:
        level: Least severe level that is logged: debug, info, warning or error.
        service: Whether everything on stderr is log output, unless it is a terminal.
    """
    import structlog

    stderr = cast(TextIO, sys.stderr if isinstance(sys.stderr, Unfailing) else Unfailing(sys.stderr))
    sys.stderr = stderr
    plain = stderr.isatty() and not os.environ.get(LEVEL_VARIABLE)
    threshold = max(LEVELS[level], logging.WARNING) if plain else LEVELS[level]
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    rendered = plain_line if plain else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shared, rendered],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(name)s: %(message)s")
        if plain
        else structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=threshold)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
    if service and not stderr.isatty():
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda died: _log_uncaught(died.exc_type, died.exc_value, died.exc_traceback)
        sys.unraisablehook = lambda died: _log_uncaught(died.exc_type, died.exc_value, died.exc_traceback)
        sys.stderr = cast(TextIO, JsonLines(stderr))


def _log_uncaught(kind: type[BaseException], error: BaseException | None, frames: TracebackType | None) -> None:
    """Log the error that ended a thread, a destructor or the process."""
    logging.getLogger("python").error("not caught: %s", kind.__name__, exc_info=(kind, error or kind(), frames))


class Unfailing(io.TextIOBase):
    """A text stream whose writes never raise ``OSError``."""

    def __init__(self, below: TextIO) -> None:
        self._below = below

    def write(self, text: str) -> int:
        """Write ``text``, or lose it."""
        with contextlib.suppress(OSError):
            self._below.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or leave it to the next time."""
        with contextlib.suppress(OSError):
            self._below.flush()

    def fileno(self) -> int:
        """Descriptor of the stream below."""
        return self._below.fileno()

    def isatty(self) -> bool:
        """Whether the stream below is a terminal."""
        return self._below.isatty()


class JsonLines(Unfailing):
    """stderr whose every line is JSON: any other line becomes the ``message`` of an event ``said``."""

    _pending = ""

    def write(self, text: str) -> int:
        """Pass on whole lines."""
        *lines, self._pending = (self._pending + text).split("\n")
        for line in filter(str.strip, lines):
            super().write((line if _is_json(line) else _as_event(line)) + "\n")
        return len(text)


def _is_json(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _as_event(line: str) -> str:
    first, colon, _ = line.partition(":")
    level = first if colon and first in LEVELS else "info"
    event = {"event": "said", "message": line.strip(), "level": level, "timestamp": datetime.now(UTC).isoformat()}
    return json.dumps(event)


def plain_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """An event as one line for a person: ``warning: nats disconnected (connection crew-journal writer)``.

    The name of the event in words, then its details; no character of it can act on the terminal.
    """
    words = str(event.get("event", "")).replace(".", " ").replace("_", " ")
    details = ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in event.items()
        if name not in _NOT_DETAILS and value is not None
    )
    return safe(f"{event.get('level', 'info')}: {words}{f' ({details})' if details else ''}")
