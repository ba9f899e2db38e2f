"""``--workers N``: the collected tests run in processes forked after collection.

Modules are imported once, not once for each process, and the fixtures of a module are made once, because a worker takes a
whole file whenever it comes to the end of one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest

_INDEX = 4
"""Bytes of the number of a file in the queue; so few are always read as a whole."""
_CRASHED = "the process that ran this test ended in the middle of it"


@dataclass
class _Files:
    """The files whose tests are to be run, by their numbers in a pipe that all processes read."""

    of: list[list[pytest.Item]]
    queue: int

    @classmethod
    def queued(cls, items: list[pytest.Item]) -> _Files:
        of = [list(group) for _, group in itertools.groupby(items, lambda item: item.path)]
        queue, end = os.pipe()
        os.write(end, b"".join(number.to_bytes(_INDEX, "big") for number in range(len(of))))
        os.close(end)
        return cls(of, queue)

    def left(self) -> Iterator[pytest.Item]:
        """Tests of one file after another, until no file is left."""
        while number := os.read(self.queue, _INDEX):
            yield from self.of[int.from_bytes(number, "big")]


@dataclass
class _Worker:
    """A process, and what it has not yet finished."""

    pid: int
    messages: Connection
    begun: pytest.Item | None = None


class _Reporting:
    """In a worker: sends reports and warnings instead of printing them."""

    def __init__(self, config: pytest.Config, messages: Connection) -> None:
        self._config, self._messages = config, messages

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._messages.send(("begun", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook.pytest_report_to_serializable
        self._messages.send(("report", hook(config=self._config, report=report)))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        given = warning_message
        text = (str(given.message), given.category.__name__, given.filename, given.lineno)
        self._messages.send(("warning", (text, when, nodeid)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, help="run the tests in so many processes forked after collection"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--workers"):  # imports what `support.forked` needs while tests are collected
        with Path(os.devnull).open("wb") as nowhere, _as_stderr(nowhere.fileno()):  # duckdb reports leaks when it ends
            forkserver.ensure_running()


@contextlib.contextmanager
def _as_stderr(descriptor: int) -> Iterator[None]:
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("--workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    files = _Files.queued(session.items)
    by_id = {item.nodeid: item for item in session.items}
    numbers = itertools.count()
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # no public name
    workers = {worker.messages: worker for worker in (_fork(session, files, next(numbers), []) for _ in range(count))}
    try:
        while workers:
            for ready in wait(list(workers)):
                worker = workers[ready]  # type: ignore[index]
                try:
                    kind, content = worker.messages.recv()
                except (EOFError, ConnectionError):
                    del workers[worker.messages]
                    os.waitpid(worker.pid, 0)
                    if worker.begun is not None:
                        _report_crash(session, worker.begun)
                        file = next(file for file in files.of if worker.begun in file)
                        rest = file[file.index(worker.begun) + 1 :]
                        new = _fork(session, files, next(numbers), rest)
                        workers[new.messages] = new
                    continue
                _take(session, worker, by_id, kind, content)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    finally:
        for worker in workers.values():
            with contextlib.suppress(ConnectionError):
                worker.messages.send("stop")
        for worker in workers.values():
            with contextlib.suppress(EOFError, ConnectionError):
                while True:
                    worker.messages.recv()
            os.waitpid(worker.pid, 0)
    return True


def _take(session: pytest.Session, worker: _Worker, by_id: dict[str, pytest.Item], kind: str, content: Any) -> None:
    hook = session.config.hook
    if kind == "begun":
        worker.begun = by_id[content]
        hook.pytest_runtest_logstart(nodeid=content, location=worker.begun.location)
    elif kind == "report":
        report = hook.pytest_report_from_serializable(config=session.config, data=content)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            worker.begun = None
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
    elif kind == "warning":
        (text, category, filename, lineno), when, nodeid = content
        message = warnings.WarningMessage(f"{category}: {text}", Warning, filename, lineno)
        hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": None}
        )


def _report_crash(session: pytest.Session, item: pytest.Item) -> None:
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", _CRASHED, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _fork(session: pytest.Session, files: _Files, number: int, first: list[pytest.Item]) -> _Worker:
    ours, theirs = Pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return _Worker(pid, ours)
    code = 1
    try:
        ours.close()
        _work(session, itertools.chain(first, files.left()), number, theirs)
        code = 0
    finally:
        os._exit(code)


def _work(session: pytest.Session, items: Iterator[pytest.Item], number: int, messages: Connection) -> None:
    config = session.config
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined,method-assign]  # runs, as a child of the parent
    for name in ("terminalreporter", "junitxml", "lfplugin", "nfplugin"):
        if (plugin := config.pluginmanager.get_plugin(name)) is not None:
            config.pluginmanager.unregister(plugin)
    capture = config.pluginmanager.getplugin("capturemanager")
    capture._global_capturing = None  # its file is shared with the parent, and modules keep it as their stderr
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"worker{number}"
    factory._basetemp.mkdir(mode=0o700)
    config.pluginmanager.register(_Reporting(config, messages))
    following = next(items, None)
    try:
        while (item := following) is not None:
            following = None if messages.poll() else next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    except BaseException:
        session._setupstate.teardown_exact(None)
        raise
