"""Where the log goes: stderr, one line an event, with ids and sequences and never the text of a memory.

Invariant: stdout belongs to data; nothing is logged there, whatever library logs it.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NOISY: Final = ("httpx", "httpcore", "nats", "faststream", "uvicorn.access", "uvicorn.error", "asyncio")
"""Libraries whose INFO is about themselves; they are heard from WARNING on."""


def configure_logging(level: str) -> None:
    """Send everything from ``level`` on to stderr: readable on a terminal, JSON elsewhere."""
    import structlog

    threshold = LEVELS[level]
    on_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=on_terminal) if on_terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=threshold, format="%(levelname)s %(name)s: %(message)s")
    for name in NOISY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
