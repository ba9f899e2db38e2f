"""A command in a process of its own, forked from a server that has imported the package.

Starting the interpreter and importing the package is two thirds of the CPU time of a short ``up``. The process has its own
pid, signals, streams, environment and exit code; a test of the start itself spawns the installed command instead.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["crew_journal.services.cli.main", "crew_journal.services.runtime"])
_OPEN_MODES = ("r", "w", "w")
_GIVEN = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]  # private: no public way to fork
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


class _Descriptor:
    """A file descriptor of which the new process gets a duplicate."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _duplicate, (DupFd(self.number),)


def _duplicate(given: Any) -> _Descriptor:
    return _Descriptor(given.detach())


def _run(argv: Sequence[str], environment: Mapping[str, str], streams: Sequence[_Descriptor]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.number, number)
        os.close(stream.number)
    sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate(_OPEN_MODES))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(argv)
    from crew_journal.services.cli.entry import main

    sys.exit(main())


class Forked(subprocess.Popen[Any]):
    """A command that runs; ``stdin``, ``stdout`` and ``stderr`` must be given, further options must not."""

    def _execute_child(self, *given: Any) -> None:
        named = _GIVEN.bind(self, *given).arguments
        pipes = [named[name] for name in _PIPES]
        streams = [_Descriptor(number) for number in (pipes[0], pipes[3], pipes[5])]
        self._process = _SERVER.Process(target=_run, args=(named["args"], named["env"], streams))
        self._process.start()
        self.pid = self._process.pid or 0
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # of Popen

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return int(self.returncode)
