"""Where the log goes: stderr, one line an event, with ids and sequences and never the text of a memory.

A person at a terminal gets what needs attention, in words; whatever else reads stderr, and whoever names a level
(``CREW_JOURNAL_LOG_LEVEL``), gets JSON. Invariant: stdout belongs to data; nothing is logged there, whatever library
logs it. Of a service whose stderr is no terminal every line is JSON: libraries, warnings, what a thread or a task died
of, and what is said to a person.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO

from .log_stream import make_stderr_unfailing
from .output import safe

if TYPE_CHECKING:
    import structlog

LEVEL_VARIABLE: Final = "CREW_JOURNAL_LOG_LEVEL"
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NOISY: Final = ("httpx", "httpcore", "nats", "faststream", "uvicorn.access", "uvicorn.error", "asyncio")
"""Libraries whose INFO is about themselves; they are heard from WARNING on."""


_SPARED: Final = ("event", "level", "timestamp")


def configure_logging(level: str, *, service: bool = False) -> None:
    """Send the log to stderr.

    JSON from ``level`` on; on a terminal where nobody named a level, plain lines from ``level`` or warning on.

    Args:
        level: Least severe level that is logged: debug, info, warning or error.
        service: Whether everything on stderr is log, unless it is a terminal.
    """
    import structlog

    make_stderr_unfailing()
    stderr = sys.stderr
    plain = sys.stderr.isatty() and not os.environ.get(LEVEL_VARIABLE)
    threshold = max(LEVELS[level], logging.WARNING) if plain else LEVELS[level]
    rendered: list[structlog.typing.Processor] = [plain_line] if plain else [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s") if plain else _library_lines())
    logging.basicConfig(handlers=[handler], level=threshold)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
    if service and not stderr.isatty():
        logging.captureWarnings(True)
        sys.excepthook = _log_death
        threading.excepthook = lambda died: _log_death(died.exc_type, died.exc_value, died.exc_traceback)
        sys.unraisablehook = lambda died: _log_death(died.exc_type, died.exc_value, died.exc_traceback)
        sys.stderr = JsonLines(stderr)


def _library_lines() -> logging.Formatter:
    """What libraries log through ``logging``, as the same JSON."""
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )


def _log_death(kind: type[BaseException], error: BaseException | None, frames: TracebackType | None) -> None:
    """What ended a thread, a destructor or the process."""
    logging.getLogger("python").error("not caught: %s", kind.__name__, exc_info=(kind, error or kind(), frames))


class JsonLines(io.TextIOBase):
    """stderr whose every line is JSON: one that is not becomes the ``message`` of an event ``said``."""

    def __init__(self, below: TextIO) -> None:
        self._below = below
        self._pending = ""

    def write(self, text: str) -> int:
        """Pass on whole lines."""
        *lines, self._pending = (self._pending + text).split("\n")
        for line in filter(str.strip, lines):
            self._below.write((line if _is_json(line) else _said(line)) + "\n")
        return len(text)

    def flush(self) -> None:
        """Pass on what was written, whole lines that is."""
        self._below.flush()

    def fileno(self) -> int:
        """Of the stream below."""
        return self._below.fileno()


def _is_json(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _said(line: str) -> str:
    first, colon, _ = line.partition(":")
    level = first if colon and first in LEVELS else "info"
    said = {"event": "said", "message": line.strip(), "level": level, "timestamp": datetime.now(UTC).isoformat()}
    return json.dumps(said)


def plain_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """An event as one line for a person: ``warning: nats disconnected (connection crew-journal writer)``.

    The name of the event in words, then what is known of it; nothing in it can act on the terminal.
    """
    words = str(event.get("event", "")).replace(".", " ").replace("_", " ")
    known = ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in event.items()
        if name not in _SPARED and value is not None
    )
    return safe(f"{event.get('level', 'info')}: {words}{f' ({known})' if known else ''}")
