"""Where the log goes: stderr, one line an event, with ids and sequences and never the text of a memory.

A person at a terminal gets what needs attention, in words; whatever else reads stderr, and whoever names a level
(``CREW_JOURNAL_LOG_LEVEL``), gets JSON. Invariant: stdout belongs to data; nothing is logged there, whatever library
logs it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

from crew_journal.services.cli.log_stream import make_stderr_unfailing
from crew_journal.services.cli.output import safe

if TYPE_CHECKING:
    import structlog

LEVEL_VARIABLE: Final = "CREW_JOURNAL_LOG_LEVEL"
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NOISY: Final = ("httpx", "httpcore", "nats", "faststream", "uvicorn.access", "uvicorn.error", "asyncio")
"""Libraries whose INFO is about themselves; they are heard from WARNING on."""


_SPARED: Final = ("event", "level", "timestamp")


def configure_logging(level: str) -> None:
    """Send the log to stderr.

    JSON from ``level`` on; on a terminal where nobody named a level, plain lines from ``level`` or warning on.

    Args:
        level: Least severe level that is logged: debug, info, warning or error.
    """
    import structlog

    make_stderr_unfailing()
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
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=threshold, format="%(levelname)s %(name)s: %(message)s")
    for name in NOISY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


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
