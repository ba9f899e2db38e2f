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
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from crew_journal import consumers

_SERVER = multiprocessing.get_context("forkserver")
_PARTS = sorted(file for kind in ("fold", "reactor") for file in Path(consumers.__path__[0]).glob(f"*/*{kind}.py"))
PRELOADED = (
    "crew_journal.services.cli.main",
    "crew_journal.services.cli.entry",
    "crew_journal.services.runtime.node",
    *(f"{consumers.__name__}.{file.parent.name}.{file.stem}" for file in _PARTS),
    "crew_journal.services.client.aio",
    "anyio._backends._asyncio",
    "certifi",
    "encodings.idna",
    "h11",
    "httpcore",
    "httpx",
    "rich.progress",
    "uvicorn.lifespan.off",
    "uvloop",
    "zstandard",
)
"""What ``up`` imports: without it each takes 1.2 s of CPU time more. A name that cannot be imported is passed over."""
_SERVER.set_forkserver_preload(list(PRELOADED))
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


def _tell_imported(answer: Connection) -> None:
    answer.send(sorted(sys.modules))
    answer.close()


def imported() -> frozenset[str]:
    """What a process has imported before it runs its command."""
    here, there = _SERVER.Pipe(duplex=False)
    process = _SERVER.Process(target=_tell_imported, args=(there,))
    process.start()
    there.close()
    names = frozenset(here.recv())
    process.join()
    return names


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
