"""A command run in this process: the same ``main``, without the second that an interpreter and its imports take.

What the process itself does (signals, pipes, exit) needs a process: ``Cli.start``, ``Cli.up`` and ``Cli.spawned``.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from support.patience import impatient

NEED_A_PROCESS = frozenset({"up", "work", "demo"})
"""Commands that take over the signals or the log of their process."""
VIEWS_BEHIND = "was asked for"
"""In what a command says when the views have not come as far as ``--min-seq`` in the 5 s that a service waits."""


@contextmanager
def log_of_its_own() -> Iterator[None]:
    """Undo at the end what the block configured of the log; no logger keeps it beyond, so ``capture_logs`` works."""
    before, configure = structlog.get_config(), structlog.configure

    def uncached(**given: Any) -> None:
        configure(**{**given, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield
    configure(**before)


def run_in_process(argv: Sequence[str], environment: Mapping[str, str], stdin: str | None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command.

    Args:
        argv: Its arguments.
        environment: The whole environment it sees.
        stdin: What it reads.
    """
    from crew_journal.services.cli.main import main

    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO((stdin or "").encode()), "utf-8"),
        "stdout": io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True),
        "stderr": io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True),
    }
    with pytest.MonkeyPatch.context() as patch, log_of_its_own(), impatient():
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        code = main(argv)
    out, err = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return code, out, err
